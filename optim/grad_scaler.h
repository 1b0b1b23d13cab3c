// GradScaler: dynamic loss scaling, as torch.amp.GradScaler, which prevents the underflow of small gradients
// in f16 training. Multiplies the loss, and so all gradients, by a large scale, and divides the gradients by
// the scale before the step. A scale that is too large gives infinite gradients: the step is skipped and the
// scale is reduced. After growth_interval steps without infinities the scale is increased.
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
// bf16 has f32's range and needs no scaler; see docs/guide/amp.md.
//
// If all parameters are on one GPU, the GPU decides whether a step is skipped, and the host does not wait.
// The host waits in StepOutcome's conversion to bool, scale(), skipped_steps() and state_dict(). With
// `agree`, for parts of a model, and for parameters on several devices each step waits once. Not thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gradus/optim/optimizer.h"
#include "gradus/optim/scaled_gradient.h"
#include "gradus/tensor/ops/loss_scale.h"
#include "gradus/tensor/tensor.h"

namespace gradus::optim {

class StepOutcome {
 public:
  StepOutcome(bool stepped) : stepped_(stepped) {}
  // The step was skipped if `found`, f32[], is not 0.
  static StepOutcome skipped_if(Tensor found) {
    StepOutcome outcome(true);
    outcome.found_inf_ = std::move(found);
    return outcome;
  }

  // Returns whether the optimizer stepped. Waits for the device if the outcome is on a device.
  // Errors: as every wait, DeviceFailure and errors that kernels have reported.
  operator bool() const { return found_inf_.defined() ? found_inf_.item<float>() == 0 : stepped_; }

 private:
  bool stepped_;
  Tensor found_inf_;
};

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     // after growth_interval steps without an infinity
  double backoff_factor = 0.5;  // after a step with an infinity
  int64_t growth_interval = 2000;
  bool enabled = true;  // false: backward and step do not scale; clipping remains
  // Returns whether any rank found an infinity; the argument is whether this rank did. Called once a step, on
  // every rank: [](bool found) { return dist::any_rank(found); }. The call waits for the device. None: relies
  // on averaged gradients, which carry an infinity to every rank.
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
  // to one that is not scaled, and when the scale has become too small for f32. A GPU finds a scale that is
  // too small at the step, and the next wait of the host throws the error.
  template <class Manager> void backward(Manager& gm, const Tensor& loss, const Tensor& dy = {}) {
    const std::vector<Tensor> params = gm.attached_tensors();
    set_partial(params, false);
    if (!options_.enabled) return gm.backward(loss, dy);
    const std::vector<GradientVersion> before = begin_backward(params, device_of(params));
    gm.backward(loss, scaled_dy(loss, dy));
    mark_scaled(params, before);
  }

  // The same for a part of a model, which may not see the loss: calls backward(scale()), which adds the
  // gradients of that many times the loss to grad() of `params`. The scalers of all parts need `agree`.
  // Errors: StateError as above; what `backward` throws.
  template <class F> void backward_of_part(const std::vector<Tensor>& params, F backward) {
    set_partial(params, true);
    if (!options_.enabled) return backward(1.0);
    const std::vector<GradientVersion> before = begin_backward(params, std::nullopt);
    backward(current_.on_host.scale);
    mark_scaled(params, before);
  }

  // Divides the gradients of opt's parameters by the scale, clips them, and steps. Skips the step if a
  // gradient is infinite or NaN on any rank. Returns whether the optimizer stepped; on a GPU the conversion
  // to bool waits. Call step() once for each optimizer with gradients.
  // Errors: StateError when no parameter has a gradient, when a gradient is not from this scaler's backward,
  // and for clip_norm where gradients are a part of a model's; DTypeError for gradients in f16, which cannot
  // hold the divided values; ValueError for a negative bound; those of Optimizer::step.
  StepOutcome step(Optimizer& opt, const ScaledStepOptions& options = {});

  // Divides the gradients only, to look at them or to clip them in another way before step(opt).
  // Errors: as step; also StateError when called twice before a step.
  void unscale_(Optimizer& opt);

  // Returns the factor of the next backward; 1 when not enabled. The factor changes once between a step and
  // the next backward, however many optimizers stepped. Waits for the device.
  double scale() const { return options_.enabled ? next_scale().scale : 1; }
  // Returns the number of skipped steps so far, over all optimizers. Waits for the device.
  int64_t skipped_steps() const { return int64_t(next_scale().skipped); }
  // Returns the gradients' norm before clipping, from the last step with clip_norm; undefined before. On a
  // GPU that may be a skipped step.
  const Tensor& grad_norm() const { return grad_norm_; }
  const GradScalerOptions& options() const { return options_; }

  // Returns "scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker", "skipped_steps".
  // Waits for the device.
  State state_dict() const;
  // Errors: ValueError naming what is missing, unexpected or out of range. Nothing is changed then.
  void load_state_dict(const State& state);

 private:
  // The state of a gradient before a backward.
  struct GradientVersion {
    const TensorImpl* grad = nullptr;  // no reference held, so that backward may add in place
    uint32_t version = 0;
    bool is_scaled = false;
  };
  // The scale and its counts, on the host or on a GPU. Note [Device of the scale] in grad_scaler.cc
  struct ScaleState {
    raw::LossScale on_host;  // unused if on_device is defined
    Tensor on_device;        // f64[4]: the members of a LossScale
    raw::LossScale read() const;
  };
  // Whether an unscaled gradient has an infinity or NaN.
  struct FoundInf {
    bool on_host = false;  // unused if on_device is defined
    Tensor on_device;      // f32[]: 1 or 0
    bool read() const;
  };
  // Returns the state of the next backward on the host.
  raw::LossScale next_scale() const { return next_ ? next_->read() : current_.read(); }
  // Returns the one GPU that has all of params; nullopt: the host decides on the step.
  std::optional<Device> device_of(const std::vector<Tensor>& params) const;
  void set_partial(const std::vector<Tensor>& params, bool partial);
  void move_scale_to(std::optional<Device> device);
  // begin_backward makes the next scale the current one and returns the gradients' states; mark_scaled then
  // marks the gradients that the backward has changed as multiplied by the current scale.
  std::vector<GradientVersion> begin_backward(const std::vector<Tensor>& params,
                                              std::optional<Device> device);
  void mark_scaled(const std::vector<Tensor>& params, const std::vector<GradientVersion>& before) const;
  internal::Factor factor() const;
  Tensor scaled_dy(const Tensor& loss, const Tensor& dy) const;
  FoundInf unscale(Optimizer& opt, const char* op) const;
  void update_scale(const FoundInf& found);
  GradScalerOptions options_;
  ScaleState current_;              // of the last backward
  std::optional<ScaleState> next_;  // of the next backward; set by the steps since the last one
  uint64_t loads_ = 0;              // of states
  Tensor next_memory_;              // of next_ since the first captured step, whose replays read and write it
  std::unordered_set<const TensorImpl*> partial_params_;         // parameters of backward_of_part
  std::vector<std::pair<const Optimizer*, FoundInf>> unscaled_;  // optimizers between unscale_ and step
  Tensor grad_norm_;
};

}  // namespace gradus::optim
