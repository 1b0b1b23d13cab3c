// gan::Ema, the exponential moving average of a generator's weights: average = d average + (1 - d) weights. This
// file computes the decay d of each update from the number of images shown; optim::AveragedModel stores the
// averages.
#include "gradus/train/gan/ema.h"

#include <algorithm>
#include <cmath>

#include "gradus/tensor/runtime/capture.h"

namespace gradus::gan {
namespace {

// Returns gamma >= 0 with sigma^2 = (gamma + 1) / ((gamma + 2)^2 (gamma + 3)), the variance of the density
// (gamma + 1) t^gamma on [0, 1], by bisection: the variance falls with gamma, and is 1/12 for gamma = 0.
double gamma_of(double sigma) {
  const auto variance = [](double g) { return (g + 1) / ((g + 2) * (g + 2) * (g + 3)); };
  double low = 0, high = 1 / sigma;  // the variance is below 1 / (gamma + 2)^2
  for (double middle = high / 2; low < middle && middle < high; middle = (low + high) / 2)
    (variance(middle) > sigma * sigma ? low : high) = middle;
  return low;
}

}  // namespace

// `average_` refers to the model, which must outlive this object, and has its own copies of the weights.
Ema::Ema(const nn::Module& model, EmaOptions options) : options_(options), average_(model) {
  const EmaOptions& o = options_;
  if (o.decay.has_value() + o.half_life_images.has_value() + o.power_sigma.has_value() != 1)
    throw ValueError("Ema", "expected one of decay, half_life_images and power_sigma");
  if (o.decay && !(*o.decay >= 0 && *o.decay < 1))
    throw ValueError("Ema", "expected a decay in [0, 1), got ", *o.decay);
  if (o.half_life_images && !(*o.half_life_images > 0))
    throw ValueError("Ema", "expected half_life_images > 0, got ", *o.half_life_images);
  if (o.power_sigma && !(*o.power_sigma > 0 && *o.power_sigma <= 0.288))
    throw ValueError("Ema", "expected power_sigma in (0, 0.288], got ", *o.power_sigma);
  if (o.power_sigma) gamma_ = gamma_of(*o.power_sigma);
  if (!(o.ramp_up >= 0)) throw ValueError("Ema", "expected ramp_up >= 0, got ", o.ramp_up);
}

// The numbers of images count all images shown since the start of the training, on all ranks together: `before` at
// the last update, `images` at this update. With a half-life,
//   d = 0.5^((images - before) / h), where h = min(half_life_images, ramp_up * images);
// ramp_up = 0 means h = half_life_images. For h = 0, d = 0: the average becomes a copy of the weights. With
// power_sigma,
//   d = (before / images)^(gamma + 1) = (1 - (images - before) / images)^(gamma + 1).
double Ema::decay(int64_t before, int64_t images) const {
  if (options_.decay) return *options_.decay;
  if (options_.power_sigma) return images > 0 ? std::pow(double(before) / double(images), gamma_ + 1) : 0;
  double half_life = *options_.half_life_images;
  if (options_.ramp_up > 0) half_life = std::min(half_life, options_.ramp_up * double(images));
  return half_life > 0 ? std::exp2(-double(images - before) / half_life) : 0;
}

void Ema::update(int64_t images) {
  refuse_capture("Ema", "its decay depends on a number of the host; update it after the step");
  if (images < images_)
    throw ValueError("Ema", "expected the number of images shown so far, at least ", images_, ", got ",
                     images);
  average_.update_parameters(decay(images_, images));
  images_ = images;
}

// Returns the state of AveragedModel with one more number, "images".
optim::State Ema::state_dict() const {
  optim::State state = average_.state_dict();
  state.numbers.emplace_back("images", double(images_));
  return state;
}

// Errors: ValueError without a valid number "images", and the errors of AveragedModel::load_state_dict; the Ema is
// then unchanged. 2^53 is the limit up to which a double represents all integers.
void Ema::load_state_dict(const optim::State& state) {
  optim::State averages = state;
  const auto images = std::ranges::find(averages.numbers, "images", [](const auto& n) { return n.first; });
  if (images == averages.numbers.end() || !(images->second >= 0 && images->second <= 0x1p53))
    throw ValueError("Ema", "the state has no number of images");
  const auto shown = static_cast<int64_t>(images->second);
  averages.numbers.erase(images);
  average_.load_state_dict(averages);
  images_ = shown;
}

}  // namespace gradus::gan
