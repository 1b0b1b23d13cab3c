// ColorJitter, Grayscale and RandomGrayscale, as torchvision's, on images of 8-bit pixels. Random numbers come
// from the Context's generator, which a data loader sets per sample. apply() may run on several threads, and
// throws StateError for a picture that is a tensor already (after ToTensor).
#include "gradus/data/transforms/color.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "gradus/data/images/image_ops.h"
#include "gradus/data/transforms/random_numbers.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

using internal::RandomNumbers;

// Returns the range that a factor or shift is drawn from: jitter.interval if given, else
// [center - amount, center + amount], with the lower bound raised to `low`. `center` is the value that changes
// nothing: 1 for factors, 0 for the hue shift. `option` names the option in errors.
// Errors: ValueError for an interval that is not inside [low, high], and for an amount that is negative, not
// finite or, for the hue, above `high`.
Interval interval_of(const char* option, FactorRange jitter, double center, double low, double high) {
  if (!jitter.is_interval) {
    const double amount = jitter.amount;
    if (!(amount >= 0 && std::isfinite(amount)) || (center == 0 && amount > high))
      throw ValueError("ColorJitter", option, " must not be negative", center == 0 ? ", and at most 0.5" : "",
                       ", got ", amount);
    return {std::max(center - amount, low), center + amount};
  }
  const Interval i = jitter.interval;
  if (!(i.low >= low && i.low <= i.high && i.high <= high))
    throw ValueError("ColorJitter", option, " must be an interval in [", low, ", ", high, "], got ", i.low,
                     " to ", i.high);
  return i;
}

}  // namespace

ColorJitter::ColorJitter(ColorJitterOptions options)
    : ranges_{interval_of("brightness", options.brightness, 1, 0, HUGE_VAL),
              interval_of("contrast", options.contrast, 1, 0, HUGE_VAL),
              interval_of("saturation", options.saturation, 1, 0, HUGE_VAL),
              interval_of("hue", options.hue, 0, -0.5, 0.5)} {}

// Shuffles the adjustments of brightness, contrast, saturation and hue (Fisher-Yates), then applies each with a
// factor, or hue shift, drawn uniformly from its interval. An adjustment whose interval is only the neutral
// value is skipped.
void ColorJitter::apply(Picture& picture) const {
  picture.require_image("ColorJitter");
  RandomNumbers random;
  std::array<int, 4> order = {0, 1, 2, 3};  // indices of ranges_ and kAdjust
  for (int i = 3; i > 0; --i)
    std::swap(order[size_t(i)], order[static_cast<size_t>(random.uniform_int(i + 1))]);
  for (int property : order) {
    const Interval interval = ranges_[property];
    const double neutral = property == 3 ? 0 : 1;
    if (interval.low == neutral && interval.high == neutral) continue;
    const double factor = random.uniform(interval.low, interval.high);
    static constexpr Image (*kAdjust[])(const Image&, double) = {adjust_brightness, adjust_contrast,
                                                                 adjust_saturation, adjust_hue};
    picture.set(kAdjust[property](picture.image(), factor));
  }
}

Grayscale::Grayscale(GrayscaleOptions options) : channels_(options.num_output_channels) {
  if (channels_ != 1 && channels_ != 3)
    throw ValueError("Grayscale", "num_output_channels must be 1 or 3, got ", channels_);
}

void Grayscale::apply(Picture& picture) const {
  picture.require_image("Grayscale");
  picture.set(to_grayscale(picture.image(), channels_));
}

RandomGrayscale::RandomGrayscale(RandomGrayscaleOptions options)
    : p_(internal::check_probability("RandomGrayscale", options.p)) {}

void RandomGrayscale::apply(Picture& picture) const {
  picture.require_image("RandomGrayscale");
  if (RandomNumbers().bernoulli(p_)) picture.set(to_grayscale(picture.image(), picture.channels()));
}

}  // namespace gradus::data
