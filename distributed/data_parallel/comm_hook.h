// Communication hooks, which replace the all-reduce of a gradient bucket, as PyTorch's DDP comm hooks.
//
//   auto cb = dist::make_allreduce_cb(kMean, {.comm_hook = dist::bf16_compress_hook()});
//
//   dist::CommHook scaled_by_ten = [](const dist::GradBucket& bucket) {                  // a user's hook
//     auto work = dist::all_reduce(bucket.buffer, {.op = kAvg, .group = bucket.group, .async_op = true});
//     return [=] { work.wait(); mul_(bucket.buffer, 10); };
//   };
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/distributed/base/reduce_op.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist {

// This rank's gradients of one bucket; zeros for a parameter that only other ranks' backwards reached. All
// ranks have the same buckets of the same parameters, in one order. Valid only during the call of the hook: a
// completion needs a copy.
struct GradBucket {
  int index = 0;         // index in the plan; a bucket that no rank's backward reached is skipped
  bool is_last = false;  // whether this is the last bucket of this backward
  // [numel]: all gradients, contiguous, of one dtype, on their GPU or in host memory. The hook writes the result here.
  Tensor buffer;
  std::vector<Tensor> gradients;   // views into buffer, in the parameters' shapes
  std::vector<Tensor> parameters;  // parameters[i] has gradients[i]
  ReduceOp op = ReduceOp::kAvg;    // kSum or kAvg (= kMean): the op of make_allreduce_cb
  int divisor = 1;  // of a mean: number of ranks that contribute; within join() maybe not all ranks
  Group group;      // the reducer's duplicate, separate from the program's own collectives

  // Turns `sum`, the sum over ranks, into the result, in place: divides by `divisor` if `op` is a mean. `sum`
  // is contiguous, such as `buffer`.
  void divide(const Tensor& sum) const;
};

// Starts the communication of a bucket, and returns a completion function. When the completion returns,
// `buffer` must contain the result, with the same bits on all ranks. Hooks run in the order of buckets on all
// ranks. Each completion runs once, in the same order, and may communicate. An empty completion means that
// the buffer already contains the result. Both run in the thread of the backward; an exception fails the job.
// Hooks are not called in a group of one rank, nor in a double backward.
using CommHook = std::function<std::function<void()>(const GradBucket& bucket)>;

// Returns a hook that all-reduces the bucket, as the reducer does without a hook.
CommHook allreduce_hook();
// Return hooks that cast f32 and f64 gradients to f16 or bf16 for the all-reduce. A mean divides before the
// cast, so that sums stay in range; values above 65504 become infinite in f16. The all-reduce adds in f32 and
// rounds the sum once.
CommHook fp16_compress_hook();
CommHook bf16_compress_hook();
// Returns a hook that sends 8 bits for each gradient: its place among 256 equal steps, of which one is 0, from the least
// to the greatest gradient of the bucket on its rank. The error of a sum is at most a step for each rank. The ranks'
// bytes are gathered and added in rank order: that takes (group size) * numel bytes, and from about 9 ranks on sends more
// than an all-reduce in f32. A bucket that is not finite on some rank is not finite on any.
CommHook quantization_pertensor_hook();
// Returns a hook that sends nothing: every rank keeps its local gradient. For measuring computation alone.
CommHook noop_hook();

struct PowerSGDOptions {
  int64_t matrix_approximation_rank = 1;  // r: columns of P and Q
  int64_t start_iter = 1000;              // number of backwards with plain all-reduce before compression
  double min_compression_rate = 2;        // compress [n,m] only if (n + m) * r * rate < n * m
  bool use_error_feedback = true;         // add the last step's compression error to the gradient
  bool warm_start = true;                 // start from the last step's Q, not from random numbers
  double orthogonalization_epsilon = 0;   // added to norms, against division by zero
  uint64_t seed = 0;                      // of the first Q
};
// Returns a hook with low-rank compression (PowerSGD). The gradient of a parameter [n, ...] is the matrix
// M [n, numel/n]:
//   P = M Q
//   all-reduce P, orthogonalize P
//   Q = M^T P
//   all-reduce Q
//   M = P Q^T
// Gradients that compression would not shrink by min_compression_rate, and 16-bit gradients, are sent
// uncompressed in the message of the Ps. The returned hook owns the state (Q, and one residual per gradient)
// and must serve one callback only. Checkpoints do not contain the state: a resumed run begins with
// start_iter plain backwards. NaN and infinity reach all ranks and do not stay in the state.
// Errors: ValueError for a rank below 1, a rate of 0 or less, a negative epsilon, or start_iter below 2 with
// error feedback or warm start, as in PyTorch.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD", NeurIPS 2019.
CommHook power_sgd_hook(const PowerSGDOptions& options = {});

}  // namespace gradus::dist
