// Optimizers that divide each element of the gradient by the root of a sum or mean of its squares: Adagrad,
// RMSprop and Adadelta, as in torch.optim. In all formulas p is a parameter, g = grad + weight_decay p (-grad
// with `maximize`), and t >= 1 the number of the step. States start at 0. From kName on, structs of options
// have what KernelOptimizer (optim/optimizer.h) requires: the slot of the step kernel, names of states,
// each(), which visits all options, and check(): ValueError unless numbers are >= 0 and rho <= 1.
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;

  static constexpr const char* kName = "Adagrad";
  static raw::StepSlot<AdagradOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"sum"}; }
  double initial_state(size_t) const { return initial_accumulator_value; }
  bool supports_sparse_rows() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("lr_decay", o.lr_decay), f("weight_decay", o.weight_decay);
    f("initial_accumulator_value", o.initial_accumulator_value), f("eps", o.eps);
    f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdagradOptions>;
extern template class KernelOptimizer<AdagradOptions>;
// s += g^2;  p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). s starts at initial_accumulator_value.
// Source: Duchi et al., JMLR 12 (2011).
using Adagrad = KernelOptimizer<AdagradOptions>;

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;  // divides by the standard deviation of gradients instead of their root mean square
  bool maximize = false;

  static constexpr const char* kName = "RMSprop";
  static raw::StepSlot<RMSpropOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const;
  bool supports_sparse_rows() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("alpha", o.alpha), f("eps", o.eps), f("weight_decay", o.weight_decay);
    f("momentum", o.momentum), f("centered", o.centered), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<RMSpropOptions>;
extern template class KernelOptimizer<RMSpropOptions>;
// v = alpha v + (1 - alpha) g^2;  a = alpha a + (1 - alpha) g;
// d = g / (sqrt(v - a^2 if centered, else v) + eps);  b = momentum b + d;  p -= lr b.
// A v - a^2 that is negative by rounding counts as 0.
// Source: Tieleman and Hinton, lecture 6e (2012); centered: Graves, arXiv:1308.0850.
using RMSprop = KernelOptimizer<RMSpropOptions>;

struct AdadeltaOptions {
  double lr = 1.0;
  double rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "Adadelta";
  static raw::StepSlot<AdadeltaOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"square_avg", "acc_delta"}; }
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("rho", o.rho), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdadeltaOptions>;
extern template class KernelOptimizer<AdadeltaOptions>;
// v = rho v + (1 - rho) g^2;  d = sqrt(u + eps) / sqrt(v + eps) g;  u = rho u + (1 - rho) d^2;  p -= lr d.
// Source: Zeiler, arXiv:1212.5701.
using Adadelta = KernelOptimizer<AdadeltaOptions>;

}  // namespace gradus::optim
