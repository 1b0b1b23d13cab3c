// Transforms of colors. Names, defaults and distributions are torchvision's, results Pillow's.
#pragma once

#include <cstdint>

#include "gradus/data/transforms/geometry.h"
#include "gradus/data/transforms/transform.h"

namespace gradus::data {

// How much a property varies: from `low` to `high`, or by an amount on either side of what it is.
struct Jitter {
  double amount = 0;
  Interval interval = {};
  bool is_interval = false;
  constexpr Jitter() = default;
  constexpr Jitter(double amount_) : amount(amount_) {}
  constexpr Jitter(double low, double high) : interval{low, high}, is_interval(true) {}
};

struct ColorJitterOptions {
  // Factors: of [max(0, 1 - amount), 1 + amount], or an interval that is not negative.
  Jitter brightness = {}, contrast = {}, saturation = {};
  // Of the circle of hues: [-amount, amount], amount at most 0.5, or an interval in [-0.5, 0.5].
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

// Luma, in 1 or 3 equal channels.
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

// The same with probability p, in as many channels as the image has.
class RandomGrayscale : public TransformStep {
 public:
  explicit RandomGrayscale(RandomGrayscaleOptions options = {});  // Errors: ValueError unless 0 <= p <= 1
  void apply(Picture& picture) const override;

 private:
  double p_;
};

}  // namespace gradus::data
