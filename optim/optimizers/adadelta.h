// The Adadelta optimizer, as torch.optim.Adadelta.
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct AdadeltaOptions {
  double lr = 1.0;
  double rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("rho", o.rho), f("eps", o.eps);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdadeltaOptions>;
extern raw::StepSlot<AdadeltaOptions> adadelta_step_kernel;

// v = rho v + (1 - rho) g^2;  d = sqrt(u + eps) / sqrt(v + eps) g;  u = rho u + (1 - rho) d^2;  p -= lr d,
// with g = grad + weight_decay p.
// Source: Zeiler, arXiv:1212.5701.
class Adadelta final : public OptimizerWith<AdadeltaOptions> {
 public:
  explicit Adadelta(const std::vector<Tensor>& params, AdadeltaOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "Adadelta"; }
  std::vector<const char*> state_names(const AdadeltaOptions&) const override {
    return {"square_avg", "acc_delta"};
  }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
