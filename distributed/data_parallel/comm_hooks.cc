// The communication hooks of comm_hook.h except PowerSGD: all-reduce, compression, and no communication. A hook starts
// an asynchronous collective, and returns a function that waits and completes the result in bucket.buffer [numel], or an
// empty function if it is complete.
#include "gradus/distributed/data_parallel/comm_hook.h"

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
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

CommHook quantization_pertensor_hook() {
  return [](const GradBucket& bucket) -> std::function<void()> {
    const auto off = no_record();
    const DType dtype = size_of(bucket.buffer.dtype()) < 4 ? DType::kF32 : bucket.buffer.dtype();
    const Tensor x = to(bucket.buffer, dtype);
    // x is about (byte - zero) * step, where zero stands for 0. A number that is not finite makes them NaN.
    const Tensor least = minimum(reshape(min(x), {1}), 0);
    Tensor step = (maximum(reshape(max(x), {1}), 0) - least) / 255;
    step = where(eq(step, 0), ones_like(step), step);
    const Tensor zero = round(-least / step);
    const Tensor bytes = to(nan_to_num(clamp(round(x / step) + zero, 0, 255)), DType::kU8);
    const Tensor step_and_zero = cat({step, zero}, 0);
    const int64_t ranks = bucket.group.size();
    const Tensor all_bytes = empty({ranks, x.numel()}, {DType::kU8, x.device()});
    const Tensor all_steps_and_zeros = empty({ranks, 2}, {dtype, x.device()});
    const CollectiveOptions options = {.group = bucket.group, .async_op = true};
    const Work bytes_work = all_gather_into_tensor(all_bytes, bytes, options);
    const Work steps_work = all_gather_into_tensor(all_steps_and_zeros, step_and_zero, options);
    return [=, bucket = bucket] {
      const auto off = no_record();
      bytes_work.wait(), steps_work.wait();
      Tensor sum = zeros_like(x);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const Tensor step_of_rank = select(select(all_steps_and_zeros, 0, rank), 0, 0),
                     zero_of_rank = select(select(all_steps_and_zeros, 0, rank), 0, 1);
        sum += (select(all_bytes, 0, rank) - zero_of_rank) * step_of_rank;
      }
      bucket.divide(sum);
      raw::copy_(bucket.buffer, sum);
    };
  };
}

CommHook noop_hook() {
  return [](const GradBucket&) { return std::function<void()>(); };
}

}  // namespace gradus::dist
