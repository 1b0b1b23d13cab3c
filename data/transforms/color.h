// Color transforms. Names, defaults and distributions are torchvision's; results equal Pillow's.
#pragma once

#include <cstdint>

#include "gradus/data/transforms/geometry.h"
#include "gradus/data/transforms/transform.h"

namespace gradus::data {

// The range of a random factor or shift: [low, high], or [neutral - amount, neutral + amount].
struct Jitter {
  double amount = 0;
  Interval interval = {};
  bool is_interval = false;
  constexpr Jitter() = default;
  constexpr Jitter(double amount_) : amount(amount_) {}
  constexpr Jitter(double low, double high) : interval{low, high}, is_interval(true) {}
};

struct ColorJitterOptions {
  // Range of factors: [max(0, 1 - amount), 1 + amount], or a nonnegative interval.
  Jitter brightness = {}, contrast = {}, saturation = {};
  // Range of the hue shift in cycles: [-amount, amount] with amount <= 0.5, or an interval inside [-0.5, 0.5].
  Jitter hue = {};
};

// Changes brightness, contrast, saturation and hue randomly, in random order.
class ColorJitter : public TransformStep {
 public:
  // Errors: ValueError for amounts and intervals outside the ranges above.
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
