// LBFGS: the limited-memory quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno, as torch.optim.LBFGS.
#pragma once

#include <deque>
#include <functional>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

enum class LineSearch { kNone, kStrongWolfe };

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;  // maximum number of iterations per step
  // Maximum number of calls of the closure per step; 0: max_iter * 5 / 4. A line search may exceed it by one call.
  int64_t max_eval = 0;
  // A step ends early when no gradient element has an absolute value above tolerance_grad, when an iteration
  // changes the loss by less than tolerance_change or every parameter by at most tolerance_change, or when the
  // directional derivative g . d is above -tolerance_change.
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  int64_t history_size =
      100;  // maximum number of pairs (y, s) of the last iterations; see LBFGS::CurvaturePair
  LineSearch line_search_fn = LineSearch::kNone;
  bool maximize = false;

  // Errors: ValueError for an option out of range.
  void check() const;
  // Calls f(name, value) for each option.
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("max_iter", o.max_iter), f("max_eval", o.max_eval);
    f("tolerance_grad", o.tolerance_grad), f("tolerance_change", o.tolerance_change);
    f("history_size", o.history_size), f("line_search_fn", o.line_search_fn), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LBFGSOptions>;

// Minimizes a function of the parameters p, with gradient g: p += t d with d = -H g. H approximates the inverse
// Hessian from the changes of parameters and gradients in the last iterations. t is lr (in the very
// first iteration lr * min(1, 1 / sum |g|)), or the result of a line search that starts at this value, for the
// strong Wolfe conditions. A step evaluates the function several times, by a closure:
//
//   optim::LBFGS opt(net.parameters(), {.line_search_fn = optim::LineSearch::kStrongWolfe});
//   opt.step([&] {
//     opt.clear_grad();
//     auto recording = gm.record();
//     Tensor loss = nn::mse_loss(net(x), target);
//     gm.backward(loss);
//     return loss;
//   });
//
// All parameters must be in one group and on one device, in f32 or f64. Parameters without a gradient count as
// having gradient 0. The method requires a deterministic function: compute the loss over the whole data set, not
// over random batches. The host waits for each loss and dot product. On several ranks the closure must return
// the same loss and compute the same gradients on every rank. Source: Nocedal and Wright, "Numerical
// Optimization", algorithms 7.5, 3.5 and 3.6; minFunc by M. Schmidt.
class LBFGS final : public OptimizerWith<LBFGSOptions> {
 public:
  // Errors: DTypeError unless parameters are f32 or f64; DeviceError for several devices.
  explicit LBFGS(const std::vector<Tensor>& params, LBFGSOptions options = {});

  // Makes a step of at most max_iter iterations, and returns the first loss from the closure. If the closure
  // throws, parameters and state are unchanged.
  // Errors: ValueError without a closure, or with several groups; ShapeError unless the loss has one element;
  // StateError as Optimizer::step.
  Tensor step(const std::function<Tensor()>& closure);

  State state_dict() const override;
  void read_state(StateReader in) override;

 private:
  // y = change of the gradient, s = change of the parameters in one iteration, as vectors of numel_ elements;
  // ys = y . s.
  struct CurvaturePair {
    Tensor y, s;
    double ys;
  };
  // The state from which the next step continues.
  struct IterationState {
    int64_t iterations = 0, evaluations = 0;
    double t = 0;                     // step size of the last iteration
    Tensor direction, gradient;       // direction of the last iteration, and gradient at its start
    std::deque<CurvaturePair> pairs;  // oldest first
  };
  // Returns {y, s, y . s}.
  static CurvaturePair curvature_pair(Tensor y, Tensor s);
  // Returns -H g, by the two-loop recursion of L-BFGS.
  static Tensor search_direction(const IterationState& state, const Tensor& gradient);

  // Returns all gradients concatenated to one vector, with zeros for undefined ones; negated with `maximize`.
  Tensor flat_gradient() const;
  // Adds t * direction to the parameters.
  void add_to_parameters(const Tensor& direction, double t) const;
  // The iterations of step(). Sets first_loss to the result of the first call of the closure.
  void iterate(const std::function<Tensor()>& closure, Tensor& first_loss);

  const char* kind() const override { return "LBFGS"; }
  std::vector<const char*> state_names(const LBFGSOptions&) const override { return {}; }
  // Throws StateError: a step without a closure is not possible.
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;

  DType dtype_ = DType::kF32;  // dtype of vectors: the widest of the parameters'
  int64_t numel_ = 0;          // elements of all parameters
  IterationState state_;
};

}  // namespace gradus::optim
