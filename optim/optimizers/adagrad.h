// The Adagrad optimizer, as torch.optim.Adagrad.
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("lr_decay", o.lr_decay), f("weight_decay", o.weight_decay);
    f("initial_accumulator_value", o.initial_accumulator_value), f("eps", o.eps);
    f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdagradOptions>;
extern raw::StepSlot<AdagradOptions> adagrad_step_kernel;

// In step t = 1, 2, ...: s += g^2;  p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps),
// with g = grad + weight_decay p and initially s = initial_accumulator_value.
// Source: Duchi et al., JMLR 12 (2011).
class Adagrad final : public OptimizerWith<AdagradOptions> {
 public:
  explicit Adagrad(const std::vector<Tensor>& params, AdagradOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "Adagrad"; }
  std::vector<const char*> state_names(const AdagradOptions&) const override { return {"sum"}; }
  double initial_state(size_t group, size_t) const override {
    return options(group).initial_accumulator_value;
  }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool supports_sparse_rows(size_t group) const override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
