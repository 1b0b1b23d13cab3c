// The Rprop optimizer (resilient backpropagation), as torch.optim.Rprop.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct RpropOptions {
  double lr = 1e-2;                         // initial step size of every element
  std::array<double, 2> etas = {0.5, 1.2};  // factors of a step size if the gradient's sign changes, or not
  std::array<double, 2> step_sizes = {1e-6, 50};  // minimum and maximum step size
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("eta_minus", o.etas[0]), f("eta_plus", o.etas[1]);
    f("min_step", o.step_sizes[0]), f("max_step", o.step_sizes[1]), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<RpropOptions>;
extern raw::StepSlot<RpropOptions> rprop_step_kernel;

// Each element has its own step size: p -= step_size sign(grad). The step size is multiplied by etas[1] if the
// sign of the gradient is unchanged. If the sign changes, the step size is multiplied by etas[0] and p is not
// changed. For gradients over the whole data set, not over random batches. Source: Riedmiller and Braun, ICNN
// 1993.
class Rprop final : public OptimizerWith<RpropOptions> {
 public:
  explicit Rprop(const std::vector<Tensor>& params, RpropOptions options = {}) {
    add_param_group(params, options);
  }

 private:
  const char* kind() const override { return "Rprop"; }
  std::vector<const char*> state_names(const RpropOptions&) const override { return {"prev", "step_size"}; }
  double initial_state(size_t group, size_t state) const override {
    return state == 1 ? options(group).lr : 0;
  }
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool can_skip_on_device() const override { return true; }
};

}  // namespace gradus::optim
