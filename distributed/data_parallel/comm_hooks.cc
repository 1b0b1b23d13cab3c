// The communication hooks of comm_hook.h except PowerSGD: all-reduce, compression by a cast, and no
// communication. A hook starts an asynchronous all-reduce of bucket.buffer [numel], and returns
// a function that waits and completes the result in the buffer, or an empty function if it is complete.
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/data_parallel/internal/bucket.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist {
namespace {

// Returns a hook that all-reduces the bucket in `wire_dtype`, if smaller than the bucket's dtype. A mean is
// divided before the cast, so that the sum stays in range.
CommHook cast_hook(DType wire_dtype) {
  return [wire_dtype](const GradBucket& bucket) -> std::function<void()> {
    if (size_of(bucket.buffer.dtype()) <= size_of(wire_dtype)) return allreduce_hook()(bucket);
    bucket.divide(bucket.buffer);
    const Tensor compressed = raw::to(bucket.buffer, wire_dtype);
    const Work work = all_reduce(compressed, {.group = bucket.group, .async_op = true});
    return [=, buffer = bucket.buffer] {
      work.wait();
      raw::copy_(buffer, compressed);
    };
  };
}

}  // namespace

void GradBucket::divide(const Tensor& sum) const {
  if (op == ReduceOp::kAvg) internal::divide(sum, divisor);
}

CommHook allreduce_hook() {
  return [](const GradBucket& bucket) -> std::function<void()> {
    // Within join() the divisor may be less than the group's size: then the hook sums, and divides afterward.
    const bool average = bucket.op == ReduceOp::kAvg && bucket.divisor == bucket.group.size();
    const Work work = all_reduce(
        bucket.buffer,
        {.op = average ? ReduceOp::kAvg : ReduceOp::kSum, .group = bucket.group, .async_op = true});
    return [=] {
      work.wait();
      if (!average) bucket.divide(bucket.buffer);
    };
  };
}

CommHook fp16_compress_hook() { return cast_hook(DType::kF16); }
CommHook bf16_compress_hook() { return cast_hook(DType::kBF16); }

CommHook noop_hook() {
  return [](const GradBucket&) { return std::function<void()>(); };
}

}  // namespace gradus::dist
