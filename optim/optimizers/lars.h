// Optimizers for large batches, whose learning rate is scaled by a trust ratio of norms per parameter: LARS
// and LAMB. Norms are 2-norms over each whole parameter. A trust ratio is 1 if one of its norms is 0. In the
// formulas p is a parameter, grad its gradient, negated with `maximize`, and t >= 1 the number of the step.
// From kName on, structs of options have what KernelOptimizer (optim/optimizer.h) requires: the slot of the
// step kernel, names of states, each(), which visits all options, and check(): ValueError unless numbers are
// >= 0 and betas in [0, 1).
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct LARSOptions {
  Required<double, "lr"> lr;
  double momentum = 0.9, weight_decay = 0;
  double trust_coefficient = 1e-3;  // factor of the trust ratio |p| / |grad|
  double eps = 0;
  bool maximize = false;

  static constexpr const char* kName = "LARS";
  static raw::StepSlot<LARSOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"momentum_buffer"}; }
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("momentum", o.momentum), f("weight_decay", o.weight_decay);
    f("trust_coefficient", o.trust_coefficient), f("eps", o.eps), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LARSOptions>;
extern template class KernelOptimizer<LARSOptions>;
// Layer-wise adaptive rate scaling:
// b = momentum b + lr trust_coefficient |p| / (|grad| + weight_decay |p| + eps) g;  p -= b,
// with g = grad + weight_decay p. Source: You et al., arXiv:1708.03888, algorithm 1.
using LARS = KernelOptimizer<LARSOptions>;

struct LAMBOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};  // decay rates of the mean of gradients, and of their squares
  double eps = 1e-6, weight_decay = 0;
  double max_norm = 0;          // replaces |p| in the trust ratio by min(|p|, max_norm); 0: no bound
  bool bias_correction = true;  // divides m and v by 1 - beta^t, as Adam
  bool maximize = false;

  static constexpr const char* kName = "LAMB";
  static raw::StepSlot<LAMBOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"exp_avg", "exp_avg_sq"}; }
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("max_norm", o.max_norm);
    f("bias_correction", o.bias_correction), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LAMBOptions>;
extern template class KernelOptimizer<LAMBOptions>;
// Layer-wise adaptive moments for batch training:
// m = beta1 m + (1 - beta1) grad;  v = beta2 v + (1 - beta2) grad^2;
// u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p;  p -= lr |p| / |u| u.
// Source: You et al., ICLR 2020 (arXiv:1904.00962), algorithm 2.
using LAMB = KernelOptimizer<LAMBOptions>;

}  // namespace gradus::optim
