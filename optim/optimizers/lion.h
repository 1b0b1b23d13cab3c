// The Lion optimizer (evolved sign momentum).
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};  // decay rates of the mean in the step, and of the stored mean
  double weight_decay = 0;                    // decoupled, see the formula below
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta1", o.betas[0]), f("beta2", o.betas[1]);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LionOptions>;
extern raw::StepSlot<LionOptions> lion_step_kernel;

// p -= lr (sign(beta1 m + (1 - beta1) grad) + weight_decay p);  m = beta2 m + (1 - beta2) grad.
// Source: Chen et al., arXiv:2302.06675, algorithm 2.
class Lion final : public OptimizerWith<LionOptions> {
 public:
  explicit Lion(const std::vector<Tensor>& params, LionOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "Lion"; }
  std::vector<const char*> state_names(const LionOptions&) const override { return {"exp_avg"}; }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
