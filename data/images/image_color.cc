// Conversion to gray and changes of brightness, contrast, saturation and hue of 8-bit images [H, W, C], gray
// or RGB, bit for bit as in Pillow and torchvision. This file is compiled without contraction to fused
// multiply-adds, so that rounding matches Pillow's. No function changes its argument.
#include <algorithm>
#include <array>
#include <cmath>

#include "gradus/data/images/image_ops.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

// Returns the luma of ITU-R 601, 0.299 R + 0.587 G + 0.114 B, in 16-bit fixed point.
uint8_t luma(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

// Returns a + factor * (b - a), in f32, clamped to [0, 255] and rounded toward zero. A factor above 1
// extrapolates.
uint8_t blend(int a, int b, float factor) {
  const float value = static_cast<float>(a) + factor * static_cast<float>(b - a);
  return static_cast<uint8_t>(std::clamp(value, 0.f, 255.f));
}

void check_factor(const char* op, double factor) {
  if (!(factor >= 0) || !std::isfinite(factor))
    throw ValueError(op, "the factor must not be negative, got ", factor);
}

// Replaces each byte v of all channels by table[v].
Image map_bytes(const Image& image, const std::array<uint8_t, 256>& table) {
  Image out(image.height(), image.width(), image.channels());
  const uint8_t* from = image.data();
  uint8_t* to = out.mutable_data();
  for (int64_t i = 0; i < image.bytes(); ++i) to[i] = table[from[i]];
  return out;
}

// Replaces each byte v by blend(constant, v, factor).
Image blend_with(const Image& image, int constant, double factor) {
  std::array<uint8_t, 256> table;
  for (int v = 0; v < 256; ++v)
    table[static_cast<size_t>(v)] = blend(constant, v, static_cast<float>(factor));
  return map_bytes(image, table);
}

// Returns the mean luma, rounded to the nearest integer.
int mean_luma(const Image& image) {
  const int64_t pixels = image.height() * image.width(), c = image.channels();
  const uint8_t* p = image.data();
  int64_t sum = 0;
  for (int64_t i = 0; i < pixels; ++i, p += c) sum += c == 3 ? luma(p) : *p;
  return static_cast<int>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
}

// Hue (a full turn is 255), saturation and value, each 0 to 255.
struct HSV {
  uint8_t h, s, v;
};

// Types and order of operations are Pillow's, since they determine the rounding.
HSV to_hsv(const uint8_t* rgb) {
  const uint8_t r = rgb[0], g = rgb[1], b = rgb[2];
  const uint8_t high = std::max({r, g, b}), low = std::min({r, g, b});
  if (high == low) return {0, 0, high};
  const float range = static_cast<float>(high - low);
  const float s = range / static_cast<float>(high);
  const float rc = static_cast<float>(high - r) / range, gc = static_cast<float>(high - g) / range,
              bc = static_cast<float>(high - b) / range;
  float h = 0;
  if (r == high)
    h = bc - gc;
  else if (g == high)
    h = static_cast<float>(2.0 + rc - bc);
  else
    h = static_cast<float>(4.0 + gc - rc);
  h = static_cast<float>(std::fmod(h / 6.0 + 1.0, 1.0));
  const auto to_byte = [](double x) { return static_cast<uint8_t>(std::clamp(static_cast<int>(x), 0, 255)); };
  return {to_byte(h * 255.0), to_byte(s * 255.0), high};
}

void from_hsv(HSV hsv, uint8_t* rgb) {
  const auto set = [&](int r, int g, int b) {
    const auto to_byte = [](int x) { return static_cast<uint8_t>(std::clamp(x, 0, 255)); };
    rgb[0] = to_byte(r), rgb[1] = to_byte(g), rgb[2] = to_byte(b);
  };
  const int v = hsv.v;
  if (hsv.s == 0) return set(v, v, v);
  const double sixths = static_cast<float>(hsv.h) * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(sixths));
  const float f = static_cast<float>(sixths - static_cast<double>(static_cast<float>(sector)));
  const float s = static_cast<float>(static_cast<float>(hsv.s) / 255.0);
  const float value = static_cast<float>(v);
  const int p = static_cast<int>(std::round(value * (1.0 - s)));
  const int q = static_cast<int>(std::round(value * (1.0 - s * f)));
  const int t = static_cast<int>(std::round(value * (1.0 - s * (1.0 - f))));
  const int sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  const auto& [r, g, b] = sectors[sector % 6];
  set(r, g, b);
}

// Calls f(from, to) for each pixel of an RGB image. Gray images are unchanged.
template <class F> Image map_colors(const Image& image, F f) {
  if (image.channels() == 1) return image;
  Image out(image.height(), image.width(), 3);
  const uint8_t* from = image.data();
  uint8_t* to = out.mutable_data();
  for (int64_t i = 0; i < image.bytes(); i += 3) f(from + i, to + i);
  return out;
}

}  // namespace

Image to_grayscale(const Image& image, int64_t channels) {
  if (channels != 1 && channels != 3)
    throw ValueError("to_grayscale", "channels must be 1 or 3, got ", channels);
  if (channels == 1 && image.channels() == 1) return image;
  Image out(image.height(), image.width(), channels);
  const int64_t pixels = image.height() * image.width(), c = image.channels();
  const uint8_t* from = image.data();
  uint8_t* to = out.mutable_data();
  for (int64_t i = 0; i < pixels; ++i, from += c) {
    const uint8_t gray = c == 3 ? luma(from) : *from;
    for (int64_t k = 0; k < channels; ++k) *to++ = gray;
  }
  return out;
}

Image adjust_brightness(const Image& image, double factor) {
  check_factor("adjust_brightness", factor);
  return blend_with(image, 0, factor);
}

Image adjust_contrast(const Image& image, double factor) {
  check_factor("adjust_contrast", factor);
  return blend_with(image, mean_luma(image), factor);
}

Image adjust_saturation(const Image& image, double factor) {
  check_factor("adjust_saturation", factor);
  return map_colors(image, [factor](const uint8_t* from, uint8_t* to) {
    const int gray = luma(from);
    for (int c = 0; c < 3; ++c) to[c] = blend(gray, from[c], static_cast<float>(factor));
  });
}

Image adjust_hue(const Image& image, double shift) {
  if (!(shift >= -0.5 && shift <= 0.5))
    throw ValueError("adjust_hue", "the shift must lie in [-0.5, 0.5], got ", shift);
  const uint8_t turn = static_cast<uint8_t>(static_cast<int>(shift * 255));
  return map_colors(image, [turn](const uint8_t* from, uint8_t* to) {
    HSV hsv = to_hsv(from);
    hsv.h = static_cast<uint8_t>(hsv.h + turn);
    from_hsv(hsv, to);
  });
}

}  // namespace gradus::data
