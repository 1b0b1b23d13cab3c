// The LARS optimizer (layer-wise adaptive rate scaling).
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct LARSOptions {
  Required<double, "lr"> lr;
  double momentum = 0.9, weight_decay = 0;
  double trust_coefficient = 1e-3;  // factor of the trust ratio |p| / |grad|
  double eps = 0;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("momentum", o.momentum), f("weight_decay", o.weight_decay);
    f("trust_coefficient", o.trust_coefficient), f("eps", o.eps), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<LARSOptions>;
extern raw::StepSlot<LARSOptions> lars_step_kernel;

// b = momentum b + lr trust_coefficient |p| / (|grad| + weight_decay |p| + eps) g;  p -= b,
// with g = grad + weight_decay p and 2-norms over each whole parameter. The factor of lr g is 1 if |p| or |grad|
// is 0. Source: You et al., arXiv:1708.03888, algorithm 1.
class LARS final : public OptimizerWith<LARSOptions> {
 public:
  LARS(const std::vector<Tensor>& params, LARSOptions options) { add_param_group(params, options); }

 private:
  const char* kind() const override { return "LARS"; }
  std::vector<const char*> state_names(const LARSOptions&) const override { return {"momentum_buffer"}; }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
