// Image functions used by the transforms. Results are bit for bit those of Pillow and torchvision.
#pragma once

#include <array>
#include <cstdint>

#include "gradus/data/images/image.h"
#include "gradus/data/images/resample.h"
#include "gradus/tensor/base/shape.h"
#include "gradus/tensor/tensor.h"

namespace gradus::data {

// Values of padding pixels, as in NumPy's pad. kConstant: the fill color. kEdge: the nearest pixel. kReflect:
// mirrored without repeating the edge pixels. kSymmetric: mirrored including the edge pixels.
enum class PaddingMode { kConstant, kEdge, kReflect, kSymmetric };

// Numbers of padding pixels, 0 to 2^24: one number for all sides; two numbers for left and right, top and
// bottom; or four: left, top, right, bottom.
struct Padding {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
  constexpr Padding() = default;
  template <std::integral T> constexpr Padding(T all) : left(all), top(all), right(all), bottom(all) {}
  constexpr Padding(int64_t horizontal, int64_t vertical)
      : left(horizontal), top(vertical), right(horizontal), bottom(vertical) {}
  constexpr Padding(int64_t left_, int64_t top_, int64_t right_, int64_t bottom_)
      : left(left_), top(top_), right(right_), bottom(bottom_) {}
  bool operator==(const Padding&) const = default;
};

// A color. One number means gray. Gray images use the first channel.
struct Fill {
  std::array<uint8_t, 3> rgb{};
  constexpr Fill() = default;
  template <std::integral T> constexpr Fill(T gray) : rgb{uint8_t(gray), uint8_t(gray), uint8_t(gray)} {}
  constexpr Fill(uint8_t r, uint8_t g, uint8_t b) : rgb{r, g, b} {}
};

struct PadImageOptions {
  Fill fill = 0;
  PaddingMode mode = PaddingMode::kConstant;
};

// Resizes to size.h rows of size.w pixels.
// Errors: ValueError for a size outside [1, 2^24].
Image resize(const Image& image, Size2 size, Interpolation filter = Interpolation::kBilinear);
// Adds pixels around the image.
// Errors: ValueError for padding outside [0, 2^24], and for kReflect that pads an axis of size 1.
Image pad(const Image& image, Padding padding, PadImageOptions options = {});
// Mirror the image horizontally (hflip) or vertically (vflip).
Image hflip(const Image& image);
Image vflip(const Image& image);

// Returns the pixels as f32[C,H,W], divided by 255.
Tensor to_tensor(const Image& image);

// Returns luma, (19595 R + 38470 G + 7471 B + 2^15) / 2^16, in `channels` equal channels.
// Errors: ValueError unless `channels` is 1 or 3.
Image to_grayscale(const Image& image, int64_t channels = 1);
// Blend: factor * image + (1 - factor) * other, where `other` is black (brightness), the mean luma
// (contrast), or the luma of each pixel (saturation); in f32, clamped to [0, 255], rounded toward zero.
// Saturation and hue do not change gray images.
// Errors: ValueError for a factor that is negative, infinite or NaN.
Image adjust_brightness(const Image& image, double factor);
Image adjust_contrast(const Image& image, double factor);
Image adjust_saturation(const Image& image, double factor);
// Adds `shift`, in turns of the color circle, to the hue of each pixel in Pillow's 8-bit HSV; the hue wraps
// around. Errors: ValueError for a shift outside [-0.5, 0.5], or NaN.
Image adjust_hue(const Image& image, double shift);

}  // namespace gradus::data
