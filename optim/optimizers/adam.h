// Adam and its variants: Adam, AdamW, SparseAdam, Adamax, NAdam and RAdam, as in torch.optim. In all formulas p is a
// parameter, g = grad + weight_decay p (-grad with `maximize`), t >= 1 the number of the step, and
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2, initially 0.
// From kName on, structs of options have what KernelOptimizer (optim/optimizer.h) requires: the slot of the
// step kernel, names of states, each(), which visits all options, and check(): ValueError unless betas are in
// [0, 1) and lr, eps, weight_decay and momentum_decay >= 0.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};  // decay rates of the mean of gradients, and of their squares
  double eps = 1e-8;
  double weight_decay = 0;  // adds weight_decay p to the gradient
  bool amsgrad = false;     // uses the maximum of v over all steps in place of v
  bool maximize = false;

  static constexpr const char* kName = "Adam";
  static raw::StepSlot<AdamOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const;
  bool supports_sparse_rows() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("amsgrad", o.amsgrad), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdamOptions>;
extern template class KernelOptimizer<AdamOptions>;
// p -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps).
// Source: Kingma and Ba, ICLR 2015; amsgrad: Reddi et al., ICLR 2018.
using Adam = KernelOptimizer<AdamOptions>;

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // decoupled: p *= 1 - lr weight_decay
  bool amsgrad = false;
  bool maximize = false;

  static constexpr const char* kName = "AdamW";
  static raw::StepSlot<AdamWOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const;
  bool supports_sparse_rows() const;
  static void each(auto& o, auto&& f) { AdamOptions::each(o, f); }
};
extern template class OptimizerWith<AdamWOptions>;
extern template class KernelOptimizer<AdamWOptions>;
// As Adam, but with p *= 1 - lr weight_decay before the step in place of weight decay in the gradient.
// Source: Loshchilov and Hutter, ICLR 2019.
using AdamW = KernelOptimizer<AdamWOptions>;

struct SparseAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;  // > 0
  bool maximize = false;

  static constexpr const char* kName = "SparseAdam";
  static constexpr bool kNeedsSparseRows = true;
  static raw::StepSlot<SparseAdamOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"exp_avg", "exp_avg_sq"}; }
  bool supports_sparse_rows() const { return true; }
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<SparseAdamOptions>;
extern template class KernelOptimizer<SparseAdamOptions>;
// For sparse gradients alone, whose rows and their states are updated:
// p -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps).
using SparseAdam = KernelOptimizer<SparseAdamOptions>;

struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};  // decay rates of the mean of gradients, and of their maximum
  double eps = 1e-8, weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "Adamax";
  static raw::StepSlot<AdamaxOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"exp_avg", "exp_inf"}; }
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdamaxOptions>;
extern template class KernelOptimizer<AdamaxOptions>;
// u = max(beta2 u, |g| + eps);  p -= lr / (1 - beta1^t) m / u.
// Source: Kingma and Ba, ICLR 2015, section 7.1.
using Adamax = KernelOptimizer<AdamaxOptions>;

struct NAdamOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool maximize = false;

  static constexpr const char* kName = "NAdam";
  static raw::StepSlot<NAdamOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"exp_avg", "exp_avg_sq"}; }
  std::vector<const char*> number_names() const { return {"mu_product"}; }
  std::array<double, 2> initial_numbers() const { return {1}; }
  void advance_numbers(const raw::StepItem& item, std::array<double, 2>& numbers) const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("momentum_decay", o.momentum_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<NAdamOptions>;
extern template class KernelOptimizer<NAdamOptions>;
// Adam with Nesterov momentum:
//   p -= lr ((1 - mu_t) / (1 - M_t) g + mu_(t+1) / (1 - M_(t+1)) m) / (sqrt(v / (1 - beta2^t)) + eps),
// with mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2) and M_t = mu_1 ... mu_t.
// Source: Dozat, ICLR 2016 workshop.
using NAdam = KernelOptimizer<NAdamOptions>;

struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "RAdam";
  static raw::StepSlot<RAdamOptions> step_kernel;
  void check() const;
  std::vector<const char*> state_names() const { return {"exp_avg", "exp_avg_sq"}; }
  static void each(auto& o, auto&& f) { AdamaxOptions::each(o, f); }
};
extern template class OptimizerWith<RAdamOptions>;
extern template class KernelOptimizer<RAdamOptions>;
// Adam without the division by sqrt(v) while rho_t <= 5, because v has a large variance in the first steps.
// For rho_t > 5 the step of Adam is multiplied by
//   r_t = sqrt((rho_t - 4) (rho_t - 2) r / ((r - 4) (r - 2) rho_t)),
// with r = 2 / (1 - beta2) - 1 and rho_t = r - 2 t beta2^t / (1 - beta2^t).
// Source: Liu et al., ICLR 2020, algorithm 2.
using RAdam = KernelOptimizer<RAdamOptions>;

}  // namespace gradus::optim
