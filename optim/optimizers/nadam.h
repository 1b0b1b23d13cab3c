// The NAdam optimizer (Adam with Nesterov momentum), as torch.optim.NAdam.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct NAdamOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};  // decay rates of the mean of gradients, and of their squares
  double eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("momentum_decay", o.momentum_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<NAdamOptions>;
extern raw::StepSlot<NAdamOptions> nadam_step_kernel;

// Adam with Nesterov momentum, with m and v as in Adam:
//   p -= lr ((1 - mu_t) / (1 - M_t) g + mu_(t+1) / (1 - M_(t+1)) m) / (sqrt(v / (1 - beta2^t)) + eps),
// with mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2), M_t = mu_1 ... mu_t, g = grad + weight_decay p.
// Source: Dozat, ICLR 2016 workshop.
class NAdam final : public OptimizerWith<NAdamOptions> {
 public:
  explicit NAdam(const std::vector<Tensor>& params, NAdamOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "NAdam"; }
  std::vector<const char*> state_names(const NAdamOptions&) const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  std::vector<const char*> number_names() const override { return {"mu_product"}; }
  std::array<double, 2> initial_numbers(size_t) const override { return {1}; }
  void advance_numbers(size_t group, const raw::StepItem& item,
                       std::array<double, 2>& numbers) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
