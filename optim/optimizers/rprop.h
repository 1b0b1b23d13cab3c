// Rprop.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct RpropOptions {
  double lr = 1e-2;                               // the first step size of every element
  std::array<double, 2> etas = {0.5, 1.2};        // factors when the gradient's sign changes, or stays
  std::array<double, 2> step_sizes = {1e-6, 50};  // bounds of step sizes
  bool maximize = false;

  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("eta_minus", o.etas[0]), f("eta_plus", o.etas[1]);
    f("min_step", o.step_sizes[0]), f("max_step", o.step_sizes[1]), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<RpropOptions>;
extern raw::StepSlot<RpropOptions> rprop_step_kernel;

// Moves each element by its own step size against its gradient's sign. The step size grows while the
// sign stays the same. When the sign changes, the step size shrinks and the element does not move.
// For whole batches.
// Source: Riedmiller and Braun, ICNN 1993.
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
