// Differentiable collectives. They return new tensors. Gradients of any order travel back between ranks.
//
//   Tensor all = dist::functional::cat_all_gather(features);  // f32[W*N,D], the same on every rank
//
// A gradient is itself a collective. If one rank wants a gradient, all members must record, with the same
// number of open recordings, and all must call backward. A rank whose loss does not use the result must do
// so too, and takes part with zeros. If it has no loss at all, it calls gm.backward() without a root. A
// result that no rank's loss uses has no gradient. If no rank's recording follows an input, these functions
// are plain collectives. autograd::grad(ys, xs) does not end its recording; it must reach the same
// collectives on all ranks.
//
// Ranks may have their tensors on different devices. A result is on the device of this rank's own tensor.
//
// Errors: those of collectives; MismatchError if one rank wants gradients and another has more or fewer open
// recordings; DeviceError for a tensor outside of host memory (on meta or a GPU). An exception in a rank's
// backward fails the job.
#pragma once

#include <vector>

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist::functional {

struct FunctionalOptions {
  Group group = {};
};
struct RootOptions {
  int root = 0;  // rank in the job
  Group group = {};
  Device device = kCPU;  // of the result, on a rank that gives no tensor
};

// Returns the reduction of every rank's x.
// Grad: for sum and avg, the same reduction of the gradients. For product, the sum of dy times the product of
// the others' x, which is right at zeros too. For min and max, the summed gradient goes to the winning
// elements; ties over all ranks share it equally.
// Errors: DTypeError for bit operations on a recorded tensor.
Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::kSum, const FunctionalOptions& options = {});
Tensor all_reduce_sum(const Tensor& x, const FunctionalOptions& options = {});
Tensor all_reduce_max(const Tensor& x, const FunctionalOptions& options = {});
Tensor all_reduce_min(const Tensor& x, const FunctionalOptions& options = {});
// Returns the reduction on the root. Elsewhere returns zeros without meaning; a loss may use them or not.
Tensor reduce(const Tensor& x, ReduceOp op = ReduceOp::kSum, const RootOptions& options = {});
// Returns the root's x; elsewhere x may be undefined.
// Grad: the sum of all ranks' gradients, on the root.
Tensor broadcast(const Tensor& x, const RootOptions& options = {});
// Returns every rank's x. Shapes may differ.
// Grad: the sum over ranks of their gradients for this rank's x.
std::vector<Tensor> all_gather(const Tensor& x, const FunctionalOptions& options = {});
// Returns every rank's x, joined along dim. The other dims must be equal.
Tensor cat_all_gather(const Tensor& x, int64_t dim = 0, const FunctionalOptions& options = {});
// Returns every rank's x on the root, an empty vector elsewhere.
// Grad: scatter.
std::vector<Tensor> gather(const Tensor& x, const RootOptions& options = {});
// Returns the root's xs[my group rank]. Elsewhere xs is empty.
// Grad: gather.
Tensor scatter(const std::vector<Tensor>& xs, const RootOptions& options = {});
// Cuts x along dim into one part per rank. Returns the reduction over ranks of this rank's part.
// Shapes: size(dim) divisible by the group's size.
Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::kSum, int64_t dim = 0,
                      const FunctionalOptions& options = {});
// Splits x along split_dim and sends part j to rank j. Returns the received parts, joined along concat_dim.
// Grad: the same with the two dims exchanged.
Tensor all_to_all(const Tensor& x, int64_t split_dim = 0, int64_t concat_dim = 0,
                  const FunctionalOptions& options = {});
// Sends xs[j] to rank j. Returns the tensors that came from each rank. Shapes may differ.
std::vector<Tensor> all_to_all(const std::vector<Tensor>& xs, const FunctionalOptions& options = {});

}  // namespace gradus::dist::functional
