// Communication hooks: what replaces the all-reduce of a bucket of gradients.
//
//   auto cb = dist::make_allreduce_cb(kMean, {.comm_hook = dist::bf16_compress_hook()});
//
//   dist::CommHook scaled_by_ten = [](const dist::GradBucket& bucket) {                  // a user's own
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

// A bucket of gradients under way, on one rank. All ranks see the same buckets in the same order, with
// the same parameters.
struct GradBucket {
  int index = 0;         // in the plan; buckets that no rank's backward reached are left out
  bool is_last = false;  // of this backward
  // [numel]: all gradients, one after the other, of one dtype, in host memory. The hook writes
  // the result here.
  Tensor buffer;
  std::vector<Tensor> gradients;  // views into buffer, in the parameters' shapes
  std::vector<Tensor> parameters;
  ReduceOp op = ReduceOp::kAvg;  // the sum or mean that make_allreduce_cb was given
  int divisor = 1;               // of a mean: how many ranks count (under join, fewer than all)
  Group group;                   // the reducer's own: calls in it cannot meet other collectives

  // Turns the sum over ranks into the result, in place: divides it if `op` is a mean.
  void divide(const Tensor& sum) const;
};

// Starts the communication of a bucket, and returns a function that completes it. When that function returns,
// `buffer` holds the result, the same bits on all ranks. Hooks run in the order of buckets on all ranks.
// Completions run once, in the same order, and may communicate. An empty completion means that all is done.
// Hooks are not called in a group of one.
using CommHook = std::function<std::function<void()>(const GradBucket& bucket)>;

// Returns the all-reduce that is used without a hook.
CommHook allreduce_hook();
// Return hooks that send f32 and f64 gradients as f16 or bf16, with half or a quarter of the bytes. A mean
// divides before the cast, so that sums stay in range; values above 65504 become infinite in f16. Sums are
// made in f32, and rounded again whenever they travel on.
CommHook fp16_compress_hook();
CommHook bf16_compress_hook();
// Returns a hook that sends nothing: every rank keeps its own gradient. To measure computation alone.
CommHook noop_hook();

struct PowerSGDOptions {
  int64_t matrix_approximation_rank = 1;  // r: columns of P and Q
  int64_t start_iter = 1000;              // backwards with plain all-reduce before compression starts
  double min_compression_rate = 2;        // compress [n,m] only if (n + m) * r * rate < n * m
  bool use_error_feedback = true;         // add a step's compression error to the next gradient
  bool warm_start = true;                 // start from the last step's Q
  double orthogonalization_epsilon = 0;   // added to norms, against division by zero
  uint64_t seed = 0;                      // of the first Q
};
// Returns a hook with low-rank compression of matrices. A parameter [n, ...] is taken as a
// matrix [n, numel/n]:
//   P = M Q
//   all-reduce P, orthogonalize P
//   Q = M^T P
//   all-reduce Q
//   M = P Q^T
// Gradients that would not get smaller travel uncompressed together with the Ps, and so do all 16-bit
// gradients. The state belongs to the returned hook, which serves one callback: Q, and residuals of the size
// of one gradient. A resumed run starts anew, with start_iter plain backwards. NaN and infinity reach all
// ranks and leave nothing in the state.
// Errors: ValueError for a rank below 1, or for start_iter below 2 with error feedback or warm
// start, as in PyTorch.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD", NeurIPS 2019.
CommHook power_sgd_hook(const PowerSGDOptions& options = {});

}  // namespace gradus::dist
