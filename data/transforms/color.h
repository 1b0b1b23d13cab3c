// Random color transforms of images with 8-bit pixels. Names, defaults and distributions are torchvision's;
// results equal Pillow's bit for bit. apply() changes the picture in place and may run on several threads; its
// random numbers come from the calling thread's Context, whose generator a data loader sets for each sample.
// Errors: apply() throws StateError for a picture that is a tensor already (after ToTensor).
#pragma once

#include <cstdint>

#include "gradus/data/transforms/geometry.h"
#include "gradus/data/transforms/transform.h"

namespace gradus::data {

// The range from which a factor or a hue shift is drawn uniformly: an interval [low, high], or
// [v - amount, v + amount] around the value v that changes nothing: 1 for factors, 0 for the hue shift.
struct FactorRange {
  double amount = 0;
  Interval interval = {};
  bool is_interval = false;
  constexpr FactorRange() = default;
  constexpr FactorRange(double amount_) : amount(amount_) {}
  constexpr FactorRange(double low, double high) : interval{low, high}, is_interval(true) {}
};

struct ColorJitterOptions {
  // Range of factors: [max(0, 1 - amount), 1 + amount], or a nonnegative interval.
  FactorRange brightness = {}, contrast = {}, saturation = {};
  // Range of the hue shift in cycles: [-amount, amount] with amount <= 0.5, or an interval inside [-0.5, 0.5].
  FactorRange hue = {};
};

// Changes brightness, contrast, saturation and hue, in random order. Each of the first three is a blend
//   factor * image + (1 - factor) * other,
// where `other` is black (brightness), the mean luma (contrast) or the luma of each pixel (saturation). The hue is
// shifted in HSV. With default options nothing changes.
class ColorJitter : public TransformStep {
 public:
  // Errors: ValueError for amounts and intervals outside the ranges above.
  explicit ColorJitter(ColorJitterOptions options = {});
  void apply(Picture& picture) const override;

 private:
  Interval ranges_[4];  // ranges of the factors of brightness, contrast and saturation, and of the hue shift
};

struct GrayscaleOptions {
  int64_t num_output_channels = 1;
};

// Converts to luma, 0.299 R + 0.587 G + 0.114 B, in 1 or 3 equal channels.
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
