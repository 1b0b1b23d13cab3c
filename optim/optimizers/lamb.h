// The LAMB optimizer (layer-wise adaptive moments for batch training).
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct LAMBOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};  // decay rates of the mean of gradients, and of their squares
  double eps = 1e-6, weight_decay = 0;
  double max_norm = 0;          // replaces |p| in the trust ratio by min(|p|, max_norm); 0: no bound
  bool bias_correction = true;  // divides m and v by 1 - beta^t, as Adam
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("max_norm", o.max_norm);
    f("bias_correction", o.bias_correction), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LAMBOptions>;
extern raw::StepSlot<LAMBOptions> lamb_step_kernel;

// m, v as in Adam;  u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p;
// p -= lr |p| / |u| u, with 2-norms over each whole parameter. The trust ratio |p| / |u| is 1 if a norm is 0.
// Source: You et al., ICLR 2020 (arXiv:1904.00962), algorithm 2.
class LAMB final : public OptimizerWith<LAMBOptions> {
 public:
  explicit LAMB(const std::vector<Tensor>& params, LAMBOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "LAMB"; }
  std::vector<const char*> state_names(const LAMBOptions&) const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
