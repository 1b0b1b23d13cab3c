// Transforms of colors. Names, defaults and distributions are torchvision's, results Pillow's.
#pragma once

#include <cstdint>

#include "gradus/data/transforms/geometry.h"
#include "gradus/data/transforms/transform.h"

namespace gradus::data {

// The range of a random factor or shift: [low, high], or an amount on either side of the neutral value.
struct Jitter {
  double amount = 0;
  Interval interval = {};
  bool is_interval = false;
  constexpr Jitter() = default;
  constexpr Jitter(double amount_) : amount(amount_) {}
  constexpr Jitter(double low, double high) : interval{low, high}, is_interval(true) {}
};

struct ColorJitterOptions {
  // Factors in [max(0, 1 - amount), 1 + amount], or in a given interval that is not negative.
  Jitter brightness = {}, contrast = {}, saturation = {};
  // Shift as a part of the circle of hues: in [-amount, amount] with amount at most 0.5, or in a given
  // interval inside [-0.5, 0.5].
  Jitter hue = {};
};

// Varies brightness, contrast, saturation and hue, in random order.
class ColorJitter : public TransformStep {
 public:
  // Errors: ValueError for amounts and intervals other than these.
  explicit ColorJitter(ColorJitterOptions options = {});
  void apply(Picture& picture) const override;

 private:
  Interval factor_[4];  // brightness, contrast, saturation, hue
};

struct GrayscaleOptions {
  int64_t num_output_channels = 1;
};

// Converts to luma, in 1 or 3 equal channels.
class Grayscale : public TransformStep {
 public:
  explicit Grayscale(GrayscaleOptions options = {});  // Errors: ValueError for other numbers of channels
  void apply(Picture& picture) const override;

 private:
  int64_t channels_;
};

struct RandomGrayscaleOptions {
  double p = 0.1;
};

// Converts to luma with probability p. Keeps the number of channels.
class RandomGrayscale : public TransformStep {
 public:
  explicit RandomGrayscale(RandomGrayscaleOptions options = {});  // Errors: ValueError unless 0 <= p <= 1
  void apply(Picture& picture) const override;

 private:
  double p_;
};

}  // namespace gradus::data
