// The RAdam optimizer (rectified Adam), as torch.optim.RAdam.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};  // decay rates of the mean of gradients, and of their squares
  double eps = 1e-8, weight_decay = 0;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<RAdamOptions>;
extern raw::StepSlot<RAdamOptions> radam_step_kernel;

// Adam without the division by sqrt(v) while rho_t <= 5, because v has a large variance in the first steps. For
// rho_t > 5 the step of Adam is multiplied by
//   r_t = sqrt((rho_t - 4) (rho_t - 2) r / ((r - 4) (r - 2) rho_t)),
// with r = 2 / (1 - beta2) - 1 and rho_t = r - 2 t beta2^t / (1 - beta2^t). g = grad + weight_decay p.
// Source: Liu et al., ICLR 2020, algorithm 2.
class RAdam final : public OptimizerWith<RAdamOptions> {
 public:
  explicit RAdam(const std::vector<Tensor>& params, RAdamOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "RAdam"; }
  std::vector<const char*> state_names(const RAdamOptions&) const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
