// Differentiable collectives: they return new tensors, and gradients, of any order, travel
// back between ranks.
//
//   Tensor all = dist::functional::cat_all_gather(features);  // f32[W*N,D], the same on every rank
//
// A gradient is a collective itself. When a rank wants one, all members must record, with as many open
// recordings each, and all must call backward: also a rank whose loss does not use the result, which takes
// part with zeros (if need be without a root: gm.backward()). A result that nobody's loss uses has no
// gradient. Outside of recordings, and where no rank's recording follows an input, these are plain
// collectives. autograd::grad(ys, xs), whose recording goes on, must reach the same collectives on all ranks.
//
// Ranks may have their tensors on different devices: a result lies where this rank's own tensor does.
//
// Errors, besides those of collectives: MismatchError when one rank wants gradients and another has more or
// fewer open recordings; DeviceError for a tensor outside of host memory (that of meta and of GPUs). What a
// rank's backward throws fails the job.
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
// Grad: sum and avg: the same reduction of the gradients (avg of a sum over ranks); product: sum of dy *
// product of the others' x, right at zeros; min and max: the summed gradient goes to the elements that win,
// in equal shares to ties over all ranks.
// Errors: DTypeError for bit operations on a recorded tensor.
Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::kSum, const FunctionalOptions& options = {});
Tensor all_reduce_sum(const Tensor& x, const FunctionalOptions& options = {});
Tensor all_reduce_max(const Tensor& x, const FunctionalOptions& options = {});
Tensor all_reduce_min(const Tensor& x, const FunctionalOptions& options = {});
// The same on the root; elsewhere returns zeros that carry no value but must be given to backward's graph by
// being used, or not used at all.
Tensor reduce(const Tensor& x, ReduceOp op = ReduceOp::kSum, const RootOptions& options = {});
// Returns the root's x; elsewhere x may be undefined.
// Grad: the sum of all ranks' gradients, at the root.
Tensor broadcast(const Tensor& x, const RootOptions& options = {});
// Returns every rank's x. Shapes may differ.
// Grad: the sum over ranks of their gradients for this rank's x.
std::vector<Tensor> all_gather(const Tensor& x, const FunctionalOptions& options = {});
// The same, joined along dim (other dims equal).
Tensor cat_all_gather(const Tensor& x, int64_t dim = 0, const FunctionalOptions& options = {});
// Returns every rank's x on the root, an empty vector elsewhere.
// Grad: scatter.
std::vector<Tensor> gather(const Tensor& x, const RootOptions& options = {});
// Returns the root's xs[group rank]; elsewhere xs is empty.
// Grad: gather.
Tensor scatter(const std::vector<Tensor>& xs, const RootOptions& options = {});
// Returns the sum over ranks of their part of x along dim for this rank.
// Shapes: size(dim) divisible by the group's size.
Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::kSum, int64_t dim = 0,
                      const FunctionalOptions& options = {});
// Splits x along split_dim, sends part j to rank j, joins what comes along concat_dim.
// Grad: the same with dims exchanged.
Tensor all_to_all(const Tensor& x, int64_t split_dim = 0, int64_t concat_dim = 0,
                  const FunctionalOptions& options = {});
// The uneven form: xs[j] goes to rank j; returns what came from each.
std::vector<Tensor> all_to_all(const std::vector<Tensor>& xs, const FunctionalOptions& options = {});

}  // namespace gradus::dist::functional
