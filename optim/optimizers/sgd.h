// The SGD optimizer (stochastic gradient descent with momentum), as torch.optim.SGD.
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct SGDOptions {
  Required<double, "lr"> lr;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;  // requires momentum > 0 and dampening = 0
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("momentum", o.momentum), f("dampening", o.dampening), f("weight_decay", o.weight_decay);
    f("nesterov", o.nesterov), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<SGDOptions>;
extern raw::StepSlot<SGDOptions> sgd_step_kernel;

// g = grad + weight_decay p;  b = momentum b + (1 - dampening) g, but b = g in the first step;
// p -= lr (nesterov ? g + momentum b : b).
class SGD final : public OptimizerWith<SGDOptions> {
 public:
  SGD(const std::vector<Tensor>& params, SGDOptions options) { add_param_group(params, options); }

 private:
  const char* kind() const override { return "SGD"; }
  std::vector<const char*> state_names(const SGDOptions& o) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool supports_sparse_rows(size_t group) const override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
