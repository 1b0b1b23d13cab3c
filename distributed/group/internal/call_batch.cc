// CallBatch: combines consecutive calls of all_reduce to one of all_reduce_coalesced.
#include "gradus/distributed/group/internal/call_batch.h"

#include <utility>

#include "gradus/distributed/group/group_state.h"

namespace gradus::dist::internal {
namespace {

thread_local CallBatch* batch = nullptr;

}  // namespace

CallBatch::CallBatch() { batch = this; }
CallBatch::~CallBatch() {
  if (batch == this) batch = nullptr;
}

CallBatch* CallBatch::current() { return batch; }

bool CallBatch::add_all_reduce(const Tensor& x, const AllReduceOptions& options) {
  if (!x || options.op.op == ReduceOp::kPremulSum) return false;
  const bool fits = !all_reduce_.empty() && &options_.group.state() == &options.group.state() &&
                    options_.op.op == options.op.op && options_.timeout == options.timeout &&
                    all_reduce_[0].dtype() == x.dtype() && all_reduce_[0].device() == x.device();
  if (!fits) flush();
  options_ = options;
  all_reduce_.push_back(x);
  return true;
}

void CallBatch::flush() {
  if (all_reduce_.empty()) return;
  AllReduceOptions options = options_;
  options.async_op = true;
  const std::vector<Tensor> xs = std::exchange(all_reduce_, {});
  batch = nullptr;  // the call must not be added to the batch
  try {
    add(all_reduce_coalesced(xs, options));
  } catch (...) {
    batch = this;
    throw;
  }
  batch = this;
}

void CallBatch::finish() {
  flush();
  batch = nullptr;
  for (const Work& work : works_) work.wait();
}

}  // namespace gradus::dist::internal
