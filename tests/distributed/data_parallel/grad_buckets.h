// Helpers of tests of communication hooks: buckets of gradients without a reducer, and the calls that a hook
// made.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::dist {

// A bucket of gradients for `parameters`, laid out one after the other as in the reducer.
inline GradBucket make_bucket(const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                              ReduceOp op = ReduceOp::kAvg) {
  GradBucket bucket;
  bucket.is_last = true;
  bucket.parameters = parameters;
  bucket.op = op;
  bucket.divisor = bucket.group.size();
  int64_t numel = 0;
  for (const Tensor& g : gradients) numel += g.numel();
  bucket.buffer = empty({numel}, {.dtype = gradients[0].dtype()});
  int64_t at = 0;
  for (const Tensor& g : gradients) {
    const Tensor part = raw::view(raw::narrow(bucket.buffer, 0, at, g.numel()), g.shape());
    raw::copy_(part, g);
    bucket.gradients.push_back(part);
    at += g.numel();
  }
  return bucket;
}

// Runs a hook on one bucket, to its end.
inline void run_hook(const CommHook& hook, const GradBucket& bucket) {
  if (const std::function<void()> complete = hook(bucket)) complete();
}

// What this rank's last collectives sent, newest first: "all_reduce(f16[100], sum)".
inline std::vector<std::string> last_calls() {
  const std::string text = Group().state().world()->calls.text();
  static const std::regex line("#\\d+ (.*) in group");
  std::vector<std::string> calls;
  for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it)
    calls.push_back((*it)[1]);
  return calls;
}

}  // namespace gradus::dist
