// The RMSprop optimizer, as torch.optim.RMSprop.
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;  // divides by the standard deviation of gradients instead of their root mean square
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("alpha", o.alpha), f("eps", o.eps), f("weight_decay", o.weight_decay);
    f("momentum", o.momentum), f("centered", o.centered), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<RMSpropOptions>;
extern raw::StepSlot<RMSpropOptions> rmsprop_step_kernel;

// v = alpha v + (1 - alpha) g^2;  a = alpha a + (1 - alpha) g;
// d = g / (sqrt(v - a^2 if centered, else v) + eps);  b = momentum b + d;  p -= lr b,
// with g = grad + weight_decay p. A v - a^2 that is negative by rounding counts as 0.
// Source: Tieleman and Hinton, lecture 6e (2012); centered: Graves, arXiv:1308.0850.
class RMSprop final : public OptimizerWith<RMSpropOptions> {
 public:
  explicit RMSprop(const std::vector<Tensor>& params, RMSpropOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "RMSprop"; }
  std::vector<const char*> state_names(const RMSpropOptions& o) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool supports_sparse_rows(size_t group) const override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
