// Ema: the average of a generator's weights, which makes better images than the weights themselves.
//
//   gan::Ema ema(net.gen, {.half_life_images = 10'000});
//   ... opt_g.step(); ema.update(s.images()); ...
//   { nn::ParameterScope scope(net.gen, ema.weights());  save(net.gen(z)); }
#pragma once

#include <optional>

#include "gradus/optim/averaged_model.h"

namespace gradus::gan {

// One of decay and half_life_images must be given.
struct EmaOptions {
  // average = decay average + (1 - decay) weights, at every update.
  std::optional<double> decay = {};
  // After so many images that are shown, the weights of before count half: the decay of an update is
  // 0.5^(images since the one before / half_life_images).
  std::optional<double> half_life_images = {};
  // Shortens the half-life at first, to ramp_up times the images shown so far; 0: never. StyleGAN2-ADA has
  // a ramp_up of 0.05.
  double ramp_up = 0;
};

// Parameters are averaged, in f32 at least; buffers are copied. The average begins as a copy. So does that of
// a layer that is added later.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018; the half-life: "Analyzing and improving
// the image quality of StyleGAN", CVPR 2020.
class Ema {
 public:
  // `model` must outlive it.
  // Errors: ValueError for options outside of their domain.
  explicit Ema(const nn::Module& model, EmaOptions options);
  Ema(const nn::Module&& model, EmaOptions options) = delete;  // would dangle

  // Adds the model's present weights to the average. `images` counts those that the training has shown so
  // far, on all ranks together; only a half-life needs them.
  // Errors: ValueError when there are fewer than at the update before; StateError as AveragedModel.
  void update(int64_t images = 0);
  // Returns the averages by name, for nn::ParameterScope.
  nn::StateDict weights() const { return average_.weights(); }
  // Copies the averages into a model of the same kind.
  void copy_to(nn::Module& model) const { average_.copy_to(model); }
  // Returns the decay of an update after `images`, when the update before was after `before`.
  double decay(int64_t before, int64_t images) const;

  // The average as AveragedModel's, and "images".
  optim::State state_dict() const;
  void load_state_dict(const optim::State& state);

 private:
  EmaOptions options_;
  optim::AveragedModel average_;
  int64_t images_ = 0;  // of the last update
};

}  // namespace gradus::gan
