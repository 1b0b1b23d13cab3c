// The Adamax optimizer, as torch.optim.Adamax.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9,
                                 0.999};  // decay rates of the mean of gradients, and of their maximum norm
  double eps = 1e-8, weight_decay = 0;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdamaxOptions>;
extern raw::StepSlot<AdamaxOptions> adamax_step_kernel;

// m = beta1 m + (1 - beta1) g;  u = max(beta2 u, |g| + eps);  p -= lr / (1 - beta1^t) m / u, with
// g = grad + weight_decay p.
// Source: Kingma and Ba, ICLR 2015, section 7.1.
class Adamax final : public OptimizerWith<AdamaxOptions> {
 public:
  explicit Adamax(const std::vector<Tensor>& params, AdamaxOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "Adamax"; }
  std::vector<const char*> state_names(const AdamaxOptions&) const override { return {"exp_avg", "exp_inf"}; }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
