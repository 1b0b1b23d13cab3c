// GradScaler: keeps small gradients from vanishing in f16 training. It multiplies the loss, and so all
// gradients, by a large scale, and divides the gradients by it before the step. It searches for the largest
// usable scale. A scale that is too large gives an infinite gradient, and then the step is skipped.
//
//   optim::GradScaler scaler;
//   for (const data::Batch& b : loader) {
//     auto recording = gm.record();
//     Tensor loss = [&] {
//       auto amp = autocast(DType::kF16);
//       return nn::cross_entropy(net(b.input), b.target);
//     }();
//     scaler.backward(gm, loss);
//     scaler.step(opt, {.clip_norm = 1.0});  // divides, clips and steps, or skips on all ranks
//     opt.clear_grad();
//   }
//
// bf16 has f32's range and needs no scaler; see docs/amp.md.
//
// Where gradients are on a GPU, it decides there, and the host waits only if it asks: for the outcome of a
// step, scale(), skipped_steps() or the state. Exceptions are `agree`, parts of a model, and parameters on
// several devices: then each step waits once.
#pragma once

#include <functional>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gradus/optim/optimizer.h"
#include "gradus/optim/scaled_gradient.h"
#include "gradus/optim/step_outcome.h"
#include "gradus/tensor/ops/loss_scale.h"

namespace gradus::optim {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     // after growth_interval steps without an infinity
  double backoff_factor = 0.5;  // after a step with an infinity
  int64_t growth_interval = 2000;
  bool enabled = true;  // false: backward and step do not scale; clipping remains
  // Returns whether any rank found an infinity, given whether this rank did. Called once a step, on every
  // rank: [](bool found) { return dist::any_rank(found); }. None: relies on averaged gradients, which carry
  // an infinity to every rank. It waits for the device.
  std::function<bool(bool found)> agree = nullptr;
};

struct ScaledStepOptions {
  std::optional<double> clip_norm = {};  // as clip_grad_norm_, of the gradients divided by the scale
  double norm_type = 2;
  std::optional<double> clip_value = {};  // as clip_grad_value_
};

class GradScaler {
 public:
  // Errors: ValueError for an init_scale that is not positive and finite, a growth_factor of at most 1, a
  // backoff_factor outside of (0, 1), a growth_interval below 1.
  explicit GradScaler(GradScalerOptions options = {});

  // Runs gm.backward(loss, scale() * dy) for a GradManager gm; dy is 1 if undefined. Gradients add up as
  // usual, over several losses and several batches. Until they are divided by the scale, clip_grad_norm_,
  // clip_grad_value_ and Optimizer::step refuse them.
  // Errors: ShapeError unless the loss has one element or dy its shape; StateError when a gradient is added
  // to one that is not scaled, and when the scale has become too small for f32. On a GPU that is found at the
  // step, and the error is thrown where the host next waits.
  template <class Manager> void backward(Manager& gm, const Tensor& loss, const Tensor& dy = {}) {
    const std::vector<Tensor> params = gm.attached_tensors();
    note_parts(params, false);
    if (!options_.enabled) return gm.backward(loss, dy);
    const std::vector<Before> before = begin_backward(params, device_of(params));
    gm.backward(loss, scaled_dy(loss, dy));
    mark(params, before);
  }

  // The same for a part of a model, which may not see the loss: calls backward(scale()), which adds the
  // gradients of that many times the loss to grad() of `params`. The scalers of all parts need `agree`.
  // Errors: StateError as above; what `backward` throws.
  template <class F> void backward_of_part(const std::vector<Tensor>& params, F backward) {
    note_parts(params, true);
    if (!options_.enabled) return backward(1.0);
    const std::vector<Before> before = begin_backward(params, std::nullopt);
    backward(now_.numbers.scale);
    mark(params, before);
  }

  // Divides the gradients of opt's parameters by the scale, clips them, and steps. Skips the step if a
  // gradient is infinite or NaN on any rank. Returns whether it stepped; on a GPU, who asks waits. Call it
  // once for each optimizer with gradients.
  // Errors: StateError when no parameter has a gradient, when a gradient is not from this scaler's backward,
  // and for clip_norm where gradients are a part of a model's; DTypeError for gradients in f16, which cannot
  // hold the divided values; ValueError for a negative bound; those of Optimizer::step.
  StepOutcome step(Optimizer& opt, const ScaledStepOptions& options = {});

  // Divides the gradients only, to look at them or to clip them in another way before step(opt).
  // Errors: as step; also StateError when called twice before a step.
  void unscale_(Optimizer& opt);

  // Returns the factor of the next backward; 1 when not enabled. It changes once between a step and the next
  // backward, however many optimizers stepped. Waits for the device.
  double scale() const { return options_.enabled ? latest().scale : 1; }
  // Returns the number of steps left out so far, over all optimizers. Waits for the device.
  int64_t skipped_steps() const { return int64_t(latest().skipped); }
  // Returns the gradients' norm before clipping, from the last step with clip_norm. On a GPU that may be a
  // step that was left out.
  const Tensor& grad_norm() const { return grad_norm_; }
  const GradScalerOptions& options() const { return options_; }

  // Returns "scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker", "skipped_steps".
  // Waits for the device.
  State state_dict() const;
  // Errors: ValueError naming what is missing, unexpected or out of range. Nothing is changed then.
  void load_state_dict(const State& state);

 private:
  // The state of a gradient before a backward.
  struct Before {
    const TensorImpl* grad = nullptr;  // no reference held, so that backward may add in place
    uint32_t version = 0;
    bool is_scaled = false;
  };
  // Where the scale stands. Note [Where the scale is] in grad_scaler.cc
  struct Progress {
    raw::LossScale numbers;
    Tensor on_device;  // in place of the numbers, if defined

    raw::LossScale read() const;
  };
  // Whether infinities were found: f32[] on a device, or else `here`.
  struct Found {
    bool here = false;
    Tensor on_device;

    bool read() const;
  };
  raw::LossScale latest() const { return next_ ? next_->read() : now_.read(); }
  std::optional<Device> device_of(const std::vector<Tensor>& params) const;
  void note_parts(const std::vector<Tensor>& params, bool are_parts);
  void settle(std::optional<Device> device);
  std::vector<Before> begin_backward(const std::vector<Tensor>& params, std::optional<Device> device);
  void mark(const std::vector<Tensor>& params, const std::vector<Before>& before) const;
  internal::Factor factor() const;
  Tensor scaled_dy(const Tensor& loss, const Tensor& dy) const;
  Found divide(Optimizer& opt, const char* op) const;
  void advance(const Found& found);

  GradScalerOptions options_;
  Progress now_;                                 // that of the last backward
  std::optional<Progress> next_;                 // that of the next one, after a step
  std::unordered_set<const TensorImpl*> parts_;  // parameters beside which other code has more of the model
  std::vector<std::pair<const Optimizer*, Found>> unscaled_;  // infinities found by unscale_
  Tensor grad_norm_;
};

}  // namespace gradus::optim
