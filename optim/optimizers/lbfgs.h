// LBFGS: the limited-memory quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno, as torch.optim.LBFGS.
#pragma once

#include <deque>
#include <functional>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

enum class LineSearch { kNone, kStrongWolfe };

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;           // maximum number of iterations per step
  int64_t max_eval = 0;            // maximum number of evaluations of the closure per step; 0: 5/4 max_iter
  double tolerance_grad = 1e-7;    // a step ends when all gradient elements are at most this,
  double tolerance_change = 1e-9;  // or when the loss, or all parameters, change by at most this
  int64_t history_size = 100;      // pairs of vectors (y, s) to keep, each as long as all parameters together
  LineSearch line_search_fn = LineSearch::kNone;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("max_iter", o.max_iter), f("max_eval", o.max_eval);
    f("tolerance_grad", o.tolerance_grad), f("tolerance_change", o.tolerance_change);
    f("history_size", o.history_size), f("line_search_fn", o.line_search_fn), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LBFGSOptions>;

// Minimizes a function: p += t d with d = -H g. H approximates the inverse Hessian from the changes of
// parameters and gradients in the last iterations. t is lr, or the result of a line search for the strong Wolfe
// conditions. A step evaluates the function several times, by a closure:
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
// All parameters form one group on one device, in f32 or f64. The method requires a deterministic function:
// compute the loss over the whole data set, not over random batches. On several ranks the closure must return
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
  // y = change of the gradient, s = change of the parameters in one iteration, ys = y . s.
  struct Pair {
    Tensor y, s;
    double ys;
  };
  struct Memory {
    int64_t iterations = 0, evaluations = 0;
    double t = 0;                // step size of the last iteration
    Tensor direction, gradient;  // direction of the last iteration, and gradient at its start
    std::deque<Pair> pairs;      // oldest first
  };
  static Pair pair_of(Tensor y, Tensor s);
  // Returns -H g, by the two-loop recursion of L-BFGS.
  static Tensor direction_of(const Memory& memory, const Tensor& gradient);

  // Returns all gradients concatenated to one vector, with zeros for undefined ones.
  Tensor gathered_gradient() const;
  void move_parameters(const Tensor& direction, double t) const;
  void iterate(const std::function<Tensor()>& closure, Tensor& first_loss);

  const char* kind() const override { return "LBFGS"; }
  std::vector<const char*> state_names(const LBFGSOptions&) const override { return {}; }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;

  DType dtype_ = DType::kF32;  // dtype of vectors: the widest of the parameters'
  int64_t length_ = 0;         // elements of all parameters
  Memory memory_;
};

}  // namespace gradus::optim
