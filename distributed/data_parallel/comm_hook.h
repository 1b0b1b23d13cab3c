// Communication hooks: how a bucket of gradients goes through the ranks, instead of one all-reduce.
//
//   auto cb = dist::make_allreduce_cb(kMean, {.comm_hook = dist::bf16_compress_hook()});
//
//   dist::CommHook scaled_by_ten = [](const dist::GradBucket& bucket) {                  // a user's own
//     dist::Work work = dist::all_reduce(
//         bucket.buffer, {.op = kAvg, .group = bucket.group, .async_op = true});
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

// Gradients on their way, on one rank. All ranks see the same buckets in the same order, with
// the same parameters.
struct GradBucket {
  int index = 0;         // in the plan; buckets of parameters that nobody reached are left out
  bool is_last = false;  // of this backward
  // [numel], all gradients in a row, of one dtype, in host memory; the hook writes the result here.
  Tensor buffer;
  std::vector<Tensor> gradients;  // views into buffer, in the parameters' shapes
  std::vector<Tensor> parameters;
  ReduceOp op = ReduceOp::kAvg;  // sum or mean: what was asked of make_allreduce_cb
  int divisor = 1;               // of a mean: the ranks that count (fewer than the group's under join)
  Group group;                   // the reducer's own: calls in it cannot meet other collectives

  // Divides in place if a mean was asked for: sum over ranks -> result.
  void divide(const Tensor& sum) const;
};

// Starts the communication of a bucket, in the order of buckets on all ranks, and returns what completes it:
// when that returns, `buffer` holds the result, the same bits on all ranks. Completions run in the order of
// buckets as well, once, and may communicate; an empty one: all is done. Not called in a group of one.
using CommHook = std::function<std::function<void()>(const GradBucket& bucket)>;

// The all-reduce that is used without a hook.
CommHook allreduce_hook();
// Send f32 and f64 gradients as f16 or bf16, a half or a quarter of the bytes. A mean divides before the
// cast, so that sums stay in range; what is above 65504 becomes infinite in f16. Sums are made in f32, and
// rounded again whenever they travel on.
CommHook fp16_compress_hook();
CommHook bf16_compress_hook();
// Sends nothing: every rank keeps its own gradient. To measure computation alone.
CommHook noop_hook();

struct PowerSGDOptions {
  int64_t matrix_approximation_rank = 1;  // r: columns of P and Q
  int64_t start_iter = 1000;        // backwards before compression starts, with plain all-reduce until then
  double min_compression_rate = 2;  // compress [n,m] only if (n + m) * r * rate < n * m
  bool use_error_feedback = true;   // add what was lost in a step to the next one's gradient
  bool warm_start = true;           // start from the last step's Q
  double orthogonalization_epsilon = 0;  // added to norms, against division by zero
  uint64_t seed = 0;                     // of the first Q
};
// Low-rank compression of matrices (a parameter [n, ...] is taken as [n, numel/n]): P = M Q, all-reduce,
// orthogonalize, Q = M^T P, all-reduce, M = P Q^T. What does not get smaller travels with the Ps,
// uncompressed, and 16-bit gradients altogether. State (residuals, one gradient in size, and Q) belongs to
// the returned hook, which serves one callback; a run that resumes starts anew, with start_iter plain
// backwards. NaN and infinity pass through to all ranks and leave nothing behind.
// Errors: ValueError for a rank below 1, or start_iter below 2 with error feedback or warm
// start, as in PyTorch.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD", NeurIPS 2019.
CommHook power_sgd_hook(const PowerSGDOptions& options = {});

}  // namespace gradus::dist
