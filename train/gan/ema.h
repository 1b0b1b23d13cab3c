// Ema: exponential moving average of a generator's weights, which generate better images than the last
// weights.
//
//   gan::Ema ema(net.gen, {.half_life_images = 10'000});  // or {.decay = 0.999}, or {.power_sigma = 0.05}
//   ... opt_g.step(); ema.update(s.images()); ...
//   { nn::ParameterScope scope(net.gen, ema.weights());  save(net.gen(z)); }
#pragma once

#include <optional>

#include "gradus/optim/averaged_model.h"

namespace gradus::gan {

// Exactly one of decay, half_life_images and power_sigma must be set.
struct EmaOptions {
  // average = decay * average + (1 - decay) * weights, at every update.
  std::optional<double> decay = {};
  // The decay of an update is 0.5^(images since the last update / half_life_images).
  std::optional<double> half_life_images = {};
  // The average after n images weights those at the i-th image by i^gamma: the decay of an update is
  // (images at the last update / images)^(gamma + 1), and 0 for the first update. power_sigma is the standard
  // deviation of that weighting relative to n, in (0, 0.288], from which gamma follows: 0.05 and 0.1 in the paper.
  std::optional<double> power_sigma = {};
  // Bounds the half-life by ramp_up times the images shown so far; 0: no bound. StyleGAN2-ADA: 0.05.
  double ramp_up = 0;
};

// Parameters are averaged in f32 or f64; buffers are copied. The average of a parameter begins as a copy,
// also of a layer that is added later.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018; the half-life: "Analyzing and improving
// the image quality of StyleGAN", CVPR 2020; the power function: "Analyzing and improving the training dynamics of
// diffusion models", CVPR 2024.
class Ema {
 public:
  // `model` must outlive the Ema.
  // Errors: ValueError for options outside of their domain.
  explicit Ema(const nn::Module& model, EmaOptions options);
  Ema(const nn::Module&& model, EmaOptions options) = delete;  // would dangle

  // Adds the current weights of the model to the average. `images`: shown in the training, on all ranks
  // together; not used with `decay`.
  // Errors: ValueError for fewer images than at the last update; StateError as AveragedModel.
  void update(int64_t images = 0);
  // Returns the averages by name, for nn::ParameterScope.
  nn::StateDict weights() const { return average_.weights(); }
  // Copies the averages into a model of the same kind.
  void copy_to(nn::Module& model) const { average_.copy_to(model); }
  // Returns the decay of an update after `images` images, if the last update was after `before`.
  double decay(int64_t before, int64_t images) const;

  // The state of AveragedModel, and "images". Errors of loading: ValueError; the Ema is then unchanged.
  optim::State state_dict() const;
  void load_state_dict(const optim::State& state);

 private:
  EmaOptions options_;
  optim::AveragedModel average_;
  double gamma_ = 0;    // for power_sigma
  int64_t images_ = 0;  // of the last update
};

}  // namespace gradus::gan
