// The Adam and AdamW optimizers, as torch.optim.Adam and torch.optim.AdamW.
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

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("amsgrad", o.amsgrad), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdamOptions>;
extern raw::StepSlot<AdamOptions> adam_step_kernel;

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};  // decay rates of the mean of gradients, and of their squares
  double eps = 1e-8;
  double weight_decay = 1e-2;  // decoupled: p *= 1 - lr weight_decay
  bool amsgrad = false;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) { AdamOptions::each(o, f); }
};
extern template class OptimizerWith<AdamWOptions>;
extern raw::StepSlot<AdamWOptions> adamw_step_kernel;

// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// p -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps), with g = grad + weight_decay p.
// Source: Kingma and Ba, ICLR 2015; amsgrad: Reddi et al., ICLR 2018.
class Adam final : public OptimizerWith<AdamOptions> {
 public:
  explicit Adam(const std::vector<Tensor>& params, AdamOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "Adam"; }
  std::vector<const char*> state_names(const AdamOptions& o) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool supports_sparse_rows(size_t group) const override;
  bool can_skip_on_device() const override { return true; }
};

// As Adam, but with p *= 1 - lr weight_decay before the step in place of weight decay in the gradient.
// Source: Loshchilov and Hutter, ICLR 2019.
class AdamW final : public OptimizerWith<AdamWOptions> {
 public:
  explicit AdamW(const std::vector<Tensor>& params, AdamWOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "AdamW"; }
  std::vector<const char*> state_names(const AdamWOptions& o) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool supports_sparse_rows(size_t group) const override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
