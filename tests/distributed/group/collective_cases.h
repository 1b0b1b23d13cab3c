// One list of cases for collectives, with closed-form results. It knows nothing of backends: ranks may be
// threads or processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist {

struct StartedCase {
  Work work;
  std::function<std::string()> check;  // when the work is done: "" or what is wrong on this rank
};

struct CollectiveCase {
  std::string op;    // cases of one op are reported together
  std::string name;  // "f32[1031] avg, async, among every second rank"
  // Every member calls start. Calls that are always synchronous ignore `async`, which may differ between members.
  std::function<StartedCase(bool async)> start;
  bool async = false;

  // Every rank of the job calls it; returns "" or what is wrong on this rank.
  std::string run() const;
};

// What the cases may use.
struct CaseLimits {
  std::vector<DType> dtypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                               DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};
  int64_t large = 100'003;  // elements
  int64_t shift = 0;        // other values for other shifts
};

// The ops that have cases, in their order.
std::vector<std::string> collective_ops();
// Collective over the job, as it makes the groups that the cases use. All ranks get the same list.
std::vector<CollectiveCase> collective_cases(const CaseLimits& limits = {});
// The same for one group, of which this rank is a member, without messages.
std::vector<CollectiveCase> collective_cases_of(const Group& group, const CaseLimits& limits);

}  // namespace gradus::dist
