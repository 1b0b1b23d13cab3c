// StepInBackward: a GradCallback that steps each parameter as soon as its gradient is final, while the backward
// goes on, and drops the gradient, as PyTorch's _apply_optimizer_in_backward: less memory for gradients, and
// steps that overlap with the all-reduce of later buckets.
//
//   auto step = std::make_shared<optim::StepInBackward>([](const Tensor& p) {
//     return std::make_unique<optim::SGD>(std::vector{p}, optim::SGDOptions{.lr = 0.1});
//   });
//   gm.attach(net.parameters(), step);   // ddp.attach(gm, step): after the all-reduce
//   { auto recording = gm.record(); gm.backward(loss(net(x), y)); }
//
// Every backward that reaches a parameter steps it; under no_sync gradients accumulate instead. A later op of
// the backward that needs the parameter's old value is a StateError. A backward that throws may have stepped
// some parameters. Not for use with GradScaler, gradient clipping and check_finite, which need all gradients
// before a step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/optim/optimizer.h"

namespace gradus::optim {

class StepInBackward final : public GradCallback {
 public:
  // Called once for each attached parameter. Returns an optimizer of this parameter alone.
  using Factory = std::function<std::unique_ptr<Optimizer>(const Tensor& param)>;
  explicit StepInBackward(Factory factory) : factory_(std::move(factory)) {}

  // Returns the optimizers of the attached parameters, in the order of attaching, for schedules and set_lr.
  std::vector<Optimizer*> optimizers() const;
  // The states of all optimizers, numbered in the order of attaching: "0.state.0.momentum_buffer".
  State state_dict() const;
  // Errors: ValueError listing missing, unexpected and mismatching entries. All optimizers are then unchanged.
  void load_state_dict(const State& state) const;

  // Errors: ValueError for a factory that returns null or an optimizer of other parameters.
  void attached_to(const Tensor& param) override;
  void begin(const std::vector<Tensor>&, const std::vector<bool>&) override {}
  // Errors: those of Optimizer::step; StateError for a parameter whose grad() another backward has set.
  std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) override;
  std::vector<Delivery> finish() override { return {}; }

 private:
  const Factory factory_;
  std::vector<std::pair<Tensor, std::unique_ptr<Optimizer>>> entries_;
};

}  // namespace gradus::optim
