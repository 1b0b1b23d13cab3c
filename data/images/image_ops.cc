// resize, pad, flips and to_tensor for 8-bit images [H, W, C] with interleaved channels, C 1 or 3. resize,
// hflip and to_tensor (f32 [C, H, W], the bytes divided by 255) run through the lazy operations of Picture;
// pad copies pixels. Results equal those of Pillow and torchvision. The color functions are in
// image_color.cc.
#include "gradus/data/images/image_ops.h"

#include <algorithm>
#include <cstring>

#include "gradus/data/images/orientation.h"
#include "gradus/data/images/picture.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

Image resize(const Image& image, Size2 size, Interpolation filter) {
  Picture picture(image);
  picture.resize(size, filter);
  return picture.image();
}

namespace {

// Returns the row or column in [0, size) whose pixels are copied to position `i`, which may be outside this
// range. Returns -1 for the fill color. kReflect needs size > 1 for positions outside.
int64_t source_index(int64_t i, int64_t size, PaddingMode mode) {
  if (i >= 0 && i < size) return i;
  switch (mode) {
    case PaddingMode::kConstant:
      return -1;
    case PaddingMode::kEdge:
      return i < 0 ? 0 : size - 1;
    case PaddingMode::kReflect: {
      const int64_t period = 2 * (size - 1), at = ((i % period) + period) % period;
      return at < size ? at : period - at;
    }
    default: {  // kSymmetric
      const int64_t period = 2 * size, at = ((i % period) + period) % period;
      return at < size ? at : period - 1 - at;
    }
  }
}

}  // namespace

Image pad(const Image& image, Padding padding, PadImageOptions options) {
  constexpr int64_t kMax = int64_t{1} << 24;
  for (int64_t n : {padding.left, padding.top, padding.right, padding.bottom})
    if (n < 0 || n > kMax) throw ValueError("pad", "padding must be 0 to ", kMax, " pixels, got ", n);
  const int64_t h = image.height(), w = image.width(), c = image.channels();
  const bool too_thin =
      (h == 1 && padding.top + padding.bottom > 0) || (w == 1 && padding.left + padding.right > 0);
  if (options.mode == PaddingMode::kReflect && too_thin)
    throw ValueError("pad", "an image of ", h, "x", w, " has no second row or column to reflect");
  Image out(h + padding.top + padding.bottom, w + padding.left + padding.right, c);
  const uint8_t* from = image.data();
  uint8_t* to = out.mutable_data();
  const auto fill_with = [&](uint8_t* pixel) { std::memcpy(pixel, options.fill.rgb.data(), size_t(c)); };
  for (int64_t y = 0; y < out.height(); ++y, to += out.width() * c) {
    const int64_t row = source_index(y - padding.top, h, options.mode);
    if (row < 0) {
      for (int64_t x = 0; x < out.width(); ++x) fill_with(to + x * c);
      continue;
    }
    const uint8_t* in = from + row * w * c;
    std::memcpy(to + padding.left * c, in, static_cast<size_t>(w * c));
    const auto outside = [&](int64_t x) {
      const int64_t column = source_index(x - padding.left, w, options.mode);
      column < 0 ? fill_with(to + x * c) : void(std::memcpy(to + x * c, in + column * c, size_t(c)));
    };
    for (int64_t x = 0; x < padding.left; ++x) outside(x);
    for (int64_t x = padding.left + w; x < out.width(); ++x) outside(x);
  }
  return out;
}

Image hflip(const Image& image) {
  Picture picture(image);
  picture.mirror();
  return picture.image();
}

Image vflip(const Image& image) { return internal::Orientation{.flips_y = true}.upright(image); }

Tensor to_tensor(const Image& image) {
  Picture picture(image);
  picture.to_float();
  return picture.tensor();
}

}  // namespace gradus::data
