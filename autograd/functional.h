// Functional autograd: gradients of functions (grad, value_and_grad, as jax.grad), of recorded tensors (grad
// of ys, as torch.autograd.grad), Jacobians, Hessians and their products with vectors (as
// torch.autograd.functional), activation checkpointing (checkpoint) and user-defined backward rules
// (Function). A recording is the tape that GradManager::record opens on the calling thread.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/saved.h"
#include "gradus/autograd/graph/tracking.h"

namespace gradus::autograd {

using UnaryFunction = std::function<Tensor(const Tensor&)>;
using NaryFunction = std::function<Tensor(const std::vector<Tensor>&)>;
using MultiFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Returns the vector-Jacobian product dy^T df/dx at x; an undefined dy means ones. Calls f once. The gradient
// is taken with respect to f's arguments alone; tensors that f captures are constants for this gradient. An
// enclosing recording or grad records the call, also with respect to captured tensors, so nested calls give
// gradients of any order. The gradient is zeros if f does not depend on x. The second form returns one
// gradient per element of xs.
// Shapes: x any, dy like f(x), result like x.
// Errors: DTypeError unless x is floating point; StateError if x or f(x) is undefined; ShapeError for a dy of
// another shape than f(x); errors that f throws.
Tensor grad(const UnaryFunction& f, const Tensor& x, const Tensor& dy = {});
std::vector<Tensor> grad(const NaryFunction& f, const std::vector<Tensor>& xs, const Tensor& dy = {});

// Return f(x) and grad(f, x, dy), computed with one call of f.
std::pair<Tensor, Tensor> value_and_grad(const UnaryFunction& f, const Tensor& x, const Tensor& dy = {});
std::pair<Tensor, std::vector<Tensor>> value_and_grad(const NaryFunction& f, const std::vector<Tensor>& xs,
                                                      const Tensor& dy = {});

// Returns the gradients of sum_i <ys[i], dys[i]> with respect to xs, one per x. Call it while the recording
// in which ys were computed is open. The recording must follow xs: each x is attached or the result of a
// recorded op. The recording stays open and records the computation of the gradients (create_graph=True in
// PyTorch). An undefined or missing dy means 1. The gradient of an x on which no y depends is undefined.
// Errors: StateError when no open recording follows ys or one of xs, or one is undefined; ValueError unless
// dys is empty or has one dy per y; ShapeError when a dy has another shape than its y, or is missing for a y
// of several elements.
std::vector<Tensor> grad(const TensorList& ys, const std::vector<Tensor>& xs, const TensorList& dys = {});

struct DerivativeOptions {
  // Enclosing recordings, and derivatives of a function that calls these functions, record the computation,
  // with respect to x and to captured tensors. false: all results are constants.
  bool create_graph = false;
  // Throws a ValueError for a result that depends on no x, and for an x on which no result depends. false:
  // their derivatives are zeros.
  bool strict = false;
};

// Functions of derivatives, as in torch.autograd.functional. Each calls f once. Arguments are floating point;
// an omitted v is 1 and needs a result (vjp) or an x (jvp, hvp) of one element.
// Errors: DTypeError unless xs are floating point; StateError if an x or a result is undefined; ValueError
// for another number of vs; ShapeError for a v of another shape, and for an omitted v or (hessian, hvp) a
// result of several elements; errors that f throws.

// Returns f(x) and the vector-Jacobian product v^T df/dx: one backward pass.
// Shapes: v like f(x), product like x.
std::pair<Tensor, Tensor> vjp(const UnaryFunction& f, const Tensor& x, const Tensor& v = {},
                              const DerivativeOptions& options = {});
std::pair<Tensor, std::vector<Tensor>> vjp(const NaryFunction& f, const std::vector<Tensor>& xs,
                                           const Tensor& v = {}, const DerivativeOptions& options = {});
std::pair<std::vector<Tensor>, std::vector<Tensor>> vjp(const MultiFunction& f, const std::vector<Tensor>& xs,
                                                        const std::vector<Tensor>& vs = {},
                                                        const DerivativeOptions& options = {});

// Returns f(x) and the Jacobian-vector product df/dx v, or the sum of the products of all xs: two backward
// passes, the second through the first.
// Shapes: v like x, product like f(x).
std::pair<Tensor, Tensor> jvp(const UnaryFunction& f, const Tensor& x, const Tensor& v = {},
                              const DerivativeOptions& options = {});
std::pair<Tensor, Tensor> jvp(const NaryFunction& f, const std::vector<Tensor>& xs,
                              const std::vector<Tensor>& vs = {}, const DerivativeOptions& options = {});
std::pair<std::vector<Tensor>, std::vector<Tensor>> jvp(const MultiFunction& f, const std::vector<Tensor>& xs,
                                                        const std::vector<Tensor>& vs = {},
                                                        const DerivativeOptions& options = {});

// Returns the Jacobian: one backward pass per element of the results.
// Shapes: [result..., x...]; the second form returns one tensor per x, the third one list per result.
Tensor jacobian(const UnaryFunction& f, const Tensor& x, const DerivativeOptions& options = {});
std::vector<Tensor> jacobian(const NaryFunction& f, const std::vector<Tensor>& xs,
                             const DerivativeOptions& options = {});
std::vector<std::vector<Tensor>> jacobian(const MultiFunction& f, const std::vector<Tensor>& xs,
                                          const DerivativeOptions& options = {});

// Returns the Hessian of f, whose result has one element: one backward pass, and one through it per element
// of xs.
// Shapes: [x..., x...]; the second form returns h[i][j] of shape [xs[i]..., xs[j]...].
Tensor hessian(const UnaryFunction& f, const Tensor& x, const DerivativeOptions& options = {});
std::vector<std::vector<Tensor>> hessian(const NaryFunction& f, const std::vector<Tensor>& xs,
                                         const DerivativeOptions& options = {});

// Returns f(x), of one element, and the product of its Hessian with v: two backward passes. The product is
// v^T H, PyTorch's vhp, which is H v if f is twice continuously differentiable.
// Shapes: v and product like x.
std::pair<Tensor, Tensor> hvp(const UnaryFunction& f, const Tensor& x, const Tensor& v = {},
                              const DerivativeOptions& options = {});
std::pair<Tensor, std::vector<Tensor>> hvp(const NaryFunction& f, const std::vector<Tensor>& xs,
                                           const std::vector<Tensor>& vs = {},
                                           const DerivativeOptions& options = {});

// Activation checkpointing, as torch.utils.checkpoint: returns f(x) without keeping the tensors that f's ops
// save for backward. The backward calls f again, with the same random numbers and the same autocast state,
// and differentiates this second call. The graph gets one node, with edges to x and to every other tensor
// that f uses (such as captured parameters). f must compute the same values in both calls. Layers that update
// state in a forward (running statistics of batch norm) must not update it in the second call, where
// is_recomputing() is true.
// Errors: StateError when f returns an undefined tensor; errors that f throws, also in the backward.
Tensor checkpoint(const UnaryFunction& f, const Tensor& x);
// The same for several inputs. Undefined inputs reach f as undefined.
Tensor checkpoint(const NaryFunction& f, const std::vector<Tensor>& xs);

// A differentiable function with a user-defined rule:
//
//   struct Cube : autograd::Function {
//     std::vector<Tensor> forward(const std::vector<Tensor>& xs) override {
//       save(xs[0]);
//       return {xs[0] * xs[0] * xs[0]};
//     }
//     std::vector<Tensor> backward(std::vector<Tensor> dys) override {
//       return {dys[0] * 3 * square(saved(0))};
//     }
//   };
//   Tensor y = autograd::apply<Cube>(x);
//
// The ops of forward are not recorded. backward receives one gradient per output, undefined where none
// arrived, and returns one gradient per input; an undefined tensor means no gradient. A backward made of
// differentiable ops can be differentiated again.
class Function {
 public:
  virtual ~Function() = default;
  virtual std::vector<Tensor> forward(const std::vector<Tensor>& inputs) = 0;
  virtual std::vector<Tensor> backward(std::vector<Tensor> dys) = 0;

 protected:
  // save, called in forward, keeps an input, an output or an auxiliary tensor. saved(i), called in backward,
  // returns the i-th one kept, and throws StateError if the tensor was written in place in between.
  void save(const Tensor& x) { to_save_.push_back(x); }
  Tensor saved(size_t i) const { return saved_.at(i).get(); }

 private:
  friend std::vector<Tensor> apply(std::shared_ptr<Function> f, const std::vector<Tensor>& inputs);
  std::vector<Tensor> to_save_;
  std::vector<Saved> saved_;
};

// Calls f->forward, records f->backward as the rule, and returns the outputs. An instance serves one call.
// Errors: StateError when f returns one of its inputs as its output, and in the backward when f->backward
// does not return one gradient per input; ValueError when f is null.
std::vector<Tensor> apply(std::shared_ptr<Function> f, const std::vector<Tensor>& inputs);
// Call apply with a new F. apply<F>({x, y}, args...) constructs F from `args` and returns all outputs;
// apply<F>(x, y) default-constructs F and returns its only output.
// Errors: also ValueError when apply<F>(x, y) gives several outputs, or none.
template <std::derived_from<Function> F, class... Args>
std::vector<Tensor> apply(const std::vector<Tensor>& inputs, Args&&... args) {
  return autograd::apply(std::make_shared<F>(std::forward<Args>(args)...), inputs);
}
template <std::derived_from<Function> F, std::convertible_to<Tensor>... Inputs>
  requires(sizeof...(Inputs) > 0)
Tensor apply(const Inputs&... inputs) {
  std::vector<Tensor> outputs = autograd::apply(std::make_shared<F>(), std::vector<Tensor>{inputs...});
  if (outputs.size() != 1)
    throw ValueError("apply", "the function gives ", outputs.size(),
                     " outputs: apply<F>({x, ...}) returns them all");
  return std::move(outputs[0]);
}

}  // namespace gradus::autograd
