// The ASGD optimizer (averaged stochastic gradient descent), as torch.optim.ASGD.
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4, alpha = 0.75;  // see the formula of eta below
  double t0 = 1e6;                    // step after which averaging starts
  double weight_decay = 0;
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("lambd", o.lambd), f("alpha", o.alpha), f("t0", o.t0);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<ASGDOptions>;
extern raw::StepSlot<ASGDOptions> asgd_step_kernel;

// p = (1 - lambd eta) p - eta g, with g = grad + weight_decay p, initially eta = lr, and after step t
// eta = lr / (1 + lambd lr t)^alpha. The state "ax" is the average of the parameters since step t0.
// Source: Polyak and Juditsky, SIAM J. Control Optim. 30 (1992).
class ASGD final : public OptimizerWith<ASGDOptions> {
 public:
  explicit ASGD(const std::vector<Tensor>& params, ASGDOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "ASGD"; }
  std::vector<const char*> state_names(const ASGDOptions&) const override { return {"ax"}; }
  std::vector<const char*> number_names() const override { return {"eta", "mu"}; }
  std::array<double, 2> initial_numbers(size_t group) const override { return {options(group).lr, 1}; }
  void advance_numbers(size_t group, const raw::StepItem& item,
                       std::array<double, 2>& numbers) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
