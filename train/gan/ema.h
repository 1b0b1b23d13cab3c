// Ema: exponential moving average of a generator's weights, which generate better images than the last
// weights.
//
//   gan::Ema ema(net.gen, {.half_life_images = 10'000});
//   ... opt_g.step(); ema.update(s.images()); ...
//   { nn::ParameterScope scope(net.gen, ema.weights());  save(net.gen(z)); }
#pragma once

#include <optional>

#include "gradus/optim/averaged_model.h"

namespace gradus::gan {

// Exactly one of decay and half_life_images must be set.
struct EmaOptions {
  // average = decay * average + (1 - decay) * weights, at every update.
  std::optional<double> decay = {};
  // The decay of an update is 0.5^(images since the last update / half_life_images).
  std::optional<double> half_life_images = {};
  // Bounds the half-life by ramp_up times the images shown so far; 0: no bound. StyleGAN2-ADA: 0.05.
  double ramp_up = 0;
};

// Parameters are averaged in f32 or f64; buffers are copied. The average of a parameter begins as a copy,
// also of a layer that is added later.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018; the half-life: "Analyzing and improving
// the image quality of StyleGAN", CVPR 2020.
class Ema {
 public:
  // `model` must outlive the Ema.
  // Errors: ValueError for options outside of their domain.
  explicit Ema(const nn::Module& model, EmaOptions options);
  Ema(const nn::Module&& model, EmaOptions options) = delete;  // would dangle

  // Adds the current weights of the model to the average. `images`: shown in the training, on all ranks
  // together; only used with a half-life.
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
  int64_t images_ = 0;  // of the last update
};

}  // namespace gradus::gan
