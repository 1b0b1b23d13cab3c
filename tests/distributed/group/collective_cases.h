// Cases for collectives, messages and objects, with closed-form results, for any number of ranks on any
// backend: ranks may be threads or processes.
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
  // Every member calls start. Calls that are always synchronous ignore `async`, which may differ between
  // members.
  std::function<StartedCase(bool async)> start;
  bool async = false;

  // Every rank of the job calls it; returns "" or what is wrong on this rank.
  std::string run() const;
};

// The dtypes and sizes of the cases.
struct CaseLimits {
  std::vector<DType> dtypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                               DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};
  int64_t large = 100'003;  // elements
  int64_t shift = 0;        // offset into the sequence of values, for different inputs
};

// The ops that have cases, in their order.
std::vector<std::string> collective_ops();
// Collective over the job, as it makes the groups that the cases use. All ranks get the same list.
std::vector<CollectiveCase> collective_cases(const CaseLimits& limits = {});
// The same for one group, of which this rank is a member, without messages.
std::vector<CollectiveCase> collective_cases_of(const Group& group, const CaseLimits& limits);

}  // namespace gradus::dist
