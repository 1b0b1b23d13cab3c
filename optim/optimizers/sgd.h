// Optimizers that do not divide by a mean of squared gradients: SGD, ASGD and Rprop, as in torch.optim, and
// Lion. Each struct of options also has the members that KernelOptimizer (optim/optimizer.h) requires: the
// step kernel, the names of each parameter's state tensors, each(), which visits all options by name for
// checkpoints, and check(): ValueError unless lr, momentum, weight_decay, lambd and step sizes are >= 0 (the
// maximum not below the minimum), betas in [0, 1), etas[0] in (0, 1) and etas[1] > 1. In the formulas p is a
// parameter and grad its gradient, negated with `maximize`.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct SGDOptions {
  Required<double, "lr"> lr;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;  // requires momentum > 0 and dampening = 0
  bool maximize = false;

  static constexpr const char* kName = "SGD";
  static raw::StepSlot<SGDOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const;
  bool supports_sparse_rows() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("momentum", o.momentum), f("dampening", o.dampening), f("weight_decay", o.weight_decay);
    f("nesterov", o.nesterov), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<SGDOptions>;
extern template class KernelOptimizer<SGDOptions>;
// Stochastic gradient descent with momentum:
// g = grad + weight_decay p;  b = momentum b + (1 - dampening) g, but b = g in the first step;
// p -= lr (nesterov ? g + momentum b : b).
using SGD = KernelOptimizer<SGDOptions>;

struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4, alpha = 0.75;  // see the formula of eta below
  double t0 = 1e6;                    // step after which averaging starts
  double weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "ASGD";
  static raw::StepSlot<ASGDOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"ax"}; }
  std::vector<const char*> number_names() const { return {"eta", "mu"}; }
  std::array<double, 2> initial_numbers() const { return {lr, 1}; }
  void advance_numbers(const raw::StepItem& item, std::array<double, 2>& numbers) const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("lambd", o.lambd), f("alpha", o.alpha), f("t0", o.t0);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<ASGDOptions>;
extern template class KernelOptimizer<ASGDOptions>;
// Averaged stochastic gradient descent: p = (1 - lambd eta) p - eta g, with g = grad + weight_decay p,
// initially eta = lr, and after step t eta = lr / (1 + lambd lr t)^alpha. The state "ax" is the average of
// the parameters since step t0. The numbers "eta" and "mu" (the average's weight of the newest parameters)
// are kept per parameter.
// Source: Polyak and Juditsky, SIAM J. Control Optim. 30 (1992).
using ASGD = KernelOptimizer<ASGDOptions>;

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};  // decay rates of the mean in the step, and of the stored mean
  double weight_decay = 0;                    // decoupled, see the formula below
  bool maximize = false;

  static constexpr const char* kName = "Lion";
  static raw::StepSlot<LionOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"exp_avg"}; }
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LionOptions>;
extern template class KernelOptimizer<LionOptions>;
// Evolved sign momentum:
// p -= lr (sign(beta1 m + (1 - beta1) grad) + weight_decay p);  m = beta2 m + (1 - beta2) grad.
// Source: Chen et al., arXiv:2302.06675, algorithm 2.
using Lion = KernelOptimizer<LionOptions>;

struct RpropOptions {
  double lr = 1e-2;                               // initial step size of every element
  std::array<double, 2> etas = {0.5, 1.2};        // factors when the gradient's sign changes, or not
  std::array<double, 2> step_sizes = {1e-6, 50};  // minimum and maximum step size
  bool maximize = false;

  static constexpr const char* kName = "Rprop";
  static raw::StepSlot<RpropOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"prev", "step_size"}; }
  double initial_state(size_t state) const { return state == 1 ? lr : 0; }
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("eta_minus", o.etas[0]), f("eta_plus", o.etas[1]);
    f("min_step", o.step_sizes[0]), f("max_step", o.step_sizes[1]), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<RpropOptions>;
extern template class KernelOptimizer<RpropOptions>;
// Resilient backpropagation. Each element has its own step size: p -= step_size sign(grad). The step size is
// multiplied by etas[1] if the sign of the gradient is unchanged. If the sign changes, the step size is
// multiplied by etas[0] and p is not changed. For gradients over the whole data set, not over random batches.
// Source: Riedmiller and Braun, ICNN 1993.
using Rprop = KernelOptimizer<RpropOptions>;

}  // namespace gradus::optim
