// Differentiable collectives. They return new tensors. Gradients, of any order, are collectives themselves.
//
//   Tensor all = dist::functional::cat_all_gather(features);  // f32[W*N,D], the same on every rank
//
// All members of the group must call the same function. If a recording (gradient tape) of one rank tracks an
// input, all members must have the same number of open recordings, and all must call backward. A rank whose
// loss does not use the result calls backward too and contributes zeros; a rank without a loss calls
// gm.backward() without a root. A result that no rank's loss uses has no gradient. autograd::grad(ys, xs)
// does not end its recording; it must reach the same collectives on all ranks.
//
// Ranks may have their tensors on different devices of one kind, in host memory or GPUs. A result is on the device of
// this rank's own input.
//
// Errors: those of collectives.h; MismatchError for different numbers of open recordings if any tracks an
// input. An exception in a rank's backward ends the job.
#pragma once

#include <vector>

#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/remote.h"

namespace gradus::dist::functional {

using dist::remote_recv;
using dist::remote_send;

struct FunctionalOptions {
  Group group = {};
};
struct RootOptions {
  int root = 0;  // rank in the job
  Group group = {};
  Device device = kCPU;  // of the result, on a rank that passes no input tensor; a GPU if the root's is one
};

// Returns the reduction of every rank's x.
// Grad: for sum and avg, the same reduction of the ranks' dy. For product, sum over ranks of dy, times the
// product of the other ranks' x (no division, so x may be 0). For min and max, the sum over ranks of dy goes
// to the elements that are the extremum, in equal shares for ties.
// Errors: DTypeError for bit operations on floating point.
Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::kSum, const FunctionalOptions& options = {});
Tensor all_reduce_sum(const Tensor& x, const FunctionalOptions& options = {});
Tensor all_reduce_max(const Tensor& x, const FunctionalOptions& options = {});
Tensor all_reduce_min(const Tensor& x, const FunctionalOptions& options = {});
// Returns the reduction on the root, and zeros on other ranks.
// Grad: as for all_reduce, with the root's dy in place of the sum or reduction of dy.
Tensor reduce(const Tensor& x, ReduceOp op = ReduceOp::kSum, const RootOptions& options = {});
// Returns the root's x. On other ranks x may be undefined.
// Grad: on the root, the sum over ranks of dy.
Tensor broadcast(const Tensor& x, const RootOptions& options = {});
// Returns every rank's x, in the group's order. Shapes may differ.
// Grad: the sum over ranks of dy[own group rank].
std::vector<Tensor> all_gather(const Tensor& x, const FunctionalOptions& options = {});
// Returns every rank's x, concatenated along dim. Sizes of the other dims must be equal.
Tensor cat_all_gather(const Tensor& x, int64_t dim = 0, const FunctionalOptions& options = {});
// Returns every rank's x on the root, an empty vector on other ranks.
// Grad: scatter.
std::vector<Tensor> gather(const Tensor& x, const RootOptions& options = {});
// Returns the root's xs[own group rank]. On other ranks xs must be empty.
// Grad: gather.
Tensor scatter(const std::vector<Tensor>& xs, const RootOptions& options = {});
// Splits x along dim into one equal part per rank. Returns the reduction over ranks of part (own group rank).
// Grad: for sum and avg, all_gather of dy (avg: divided by the group size); for others, as for all_reduce.
// Errors: ShapeError unless x.size(dim) is divisible by the group size; all_to_all has the same error.
Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::kSum, int64_t dim = 0,
                      const FunctionalOptions& options = {});
// Splits x along split_dim into equal parts and sends part j to group rank j. Returns the received parts,
// concatenated along concat_dim. Grad: the same with the two dims exchanged.
Tensor all_to_all(const Tensor& x, int64_t split_dim = 0, int64_t concat_dim = 0,
                  const FunctionalOptions& options = {});
// Sends xs[j] to group rank j. Returns the received tensors, in the group's order. Shapes may differ, dtypes
// not. Grad: all_to_all.
std::vector<Tensor> all_to_all(const std::vector<Tensor>& xs, const FunctionalOptions& options = {});

}  // namespace gradus::dist::functional
