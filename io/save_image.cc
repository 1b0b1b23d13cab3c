// make_grid (torchvision's), PNG encoding with libpng, and save_image, which combines both. Images are
// [N, C, H, W], [C, H, W] or [H, W] on any device. make_grid without `normalize` copies on the images'
// device; everything else copies them to host memory. Nothing is recorded for gradients.
#include "gradus/io/save_image.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gradus/io/file.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::io {
namespace {

// Returns the images as a batch [N,C,H,W].
Tensor as_batch(Tensor x, std::string_view op) {
  if (x.dim() < 2 || x.dim() > 4 || x.numel() == 0)
    throw ShapeError(op, "expected images [N,C,H,W], [C,H,W] or [H,W] with pixels, got ", describe(x));
  while (x.dim() < 4) x = raw::unsqueeze(x, 0);
  return x;
}

// Clamps to [low, high], and maps [low, high] linearly to [0, 1].
void normalize(std::span<float> pixels, double low, double high) {
  const double scale = 1 / std::max(high - low, 1e-5);
  for (float& v : pixels) v = static_cast<float>((std::clamp<double>(v, low, high) - low) * scale);
}

// The same with the smallest and largest value as range. Pixels that are all NaN stay NaN.
void normalize_by_extrema(std::span<float> pixels) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double v : pixels) {  // NaN fails both comparisons and is ignored
    if (v < low) low = v;
    if (v > high) high = v;
  }
  normalize(pixels, std::min(low, high), high);
}

// Returns a copy of the batch [N, C, H, W], f32 in host memory, normalized as a whole or image by image.
Tensor normalized(const Tensor& batch, const GridOptions& options) {
  const Tensor f32 = raw::to(raw::to(batch, kCPU), DType::kF32);
  const Tensor result = raw::contiguous(f32.is_same(batch) ? raw::clone(batch) : f32);
  const std::span<float> all(result.ptr<float>(), static_cast<size_t>(result.numel()));
  const size_t count = options.scale_each ? all.size() / static_cast<size_t>(result.size(0)) : all.size();
  for (size_t begin = 0; begin < all.size(); begin += count) {
    if (options.value_range)
      normalize(all.subspan(begin, count), options.value_range->first, options.value_range->second);
    else
      normalize_by_extrema(all.subspan(begin, count));
  }
  return result;
}

// Converts the image [C, H, W] to bytes [H, W, C]. u8 is copied; floats are clamped to [0, 1], scaled to 255
// and rounded.
std::vector<uint8_t> pixels_of(const Tensor& image) {
  const int64_t channels = image.size(0), area = image.size(1) * image.size(2);
  std::vector<uint8_t> pixels(static_cast<size_t>(channels * area));
  const auto fill = [&](const auto* from, auto convert) {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < area; ++i)
        pixels[static_cast<size_t>(i * channels + c)] = convert(from[c * area + i]);
  };
  const Tensor host = raw::contiguous(raw::to(image, kCPU));
  if (host.dtype() == DType::kU8) {
    fill(host.data<uint8_t>(), [](uint8_t v) { return v; });
  } else {
    const Tensor f32 = raw::to(host, DType::kF32);
    fill(f32.data<float>(), [](float v) {
      return v > 0 ? static_cast<uint8_t>(std::lround(std::min(v, 1.f) * 255)) : uint8_t{0};
    });
  }
  return pixels;
}

}  // namespace

Tensor make_grid(const Tensor& images, const GridOptions& options) {
  constexpr char kOp[] = "make_grid";
  if (options.nrow < 1) throw ValueError(kOp, "expected nrow of at least 1, got ", options.nrow);
  if (options.padding < 0) throw ValueError(kOp, "expected padding of at least 0, got ", options.padding);
  if (options.value_range && !(options.value_range->first < options.value_range->second))
    throw ValueError(kOp, "expected a value_range that begins below its end, got [",
                     options.value_range->first, ", ", options.value_range->second, "]");
  Tensor batch = as_batch(images, kOp);
  if (options.normalize) batch = normalized(batch, options);
  const int64_t n = batch.size(0), height = batch.size(2), width = batch.size(3);
  // raw::copy_ below broadcasts an image with one channel to three.
  const int64_t channels = batch.size(1) == 1 ? 3 : batch.size(1);
  const int64_t columns = std::min(options.nrow, n), rows = (n + columns - 1) / columns;
  const int64_t padding = n == 1 ? 0 : options.padding;
  const int64_t grid_height = rows * (height + padding) + padding;
  const int64_t grid_width = columns * (width + padding) + padding;
  const Tensor grid = empty({channels, grid_height, grid_width}, {batch.dtype(), batch.device()});
  raw::fill_(grid, options.pad_value);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t top = i / columns * (height + padding) + padding;
    const int64_t left = i % columns * (width + padding) + padding;
    raw::copy_(raw::narrow(raw::narrow(grid, 1, top, height), 2, left, width), raw::select(batch, 0, i));
  }
  return grid;
}

std::string encode_png(const Tensor& image) {
  constexpr char kOp[] = "encode_png";
  if (image.dim() != 2 && image.dim() != 3)
    throw ShapeError(kOp, "expected an image [C,H,W] or [H,W], got ", describe(image));
  const Tensor x = raw::select(as_batch(image, kOp), 0, 0);
  const int64_t channels = x.size(0);
  if (channels != 1 && channels != 3 && channels != 4)
    throw ShapeError(kOp, "expected 1, 3 or 4 channels, got ", describe(image));
  if (x.dtype() != DType::kU8 && !is_floating(x.dtype()))
    throw DTypeError(kOp, "expected u8 or a floating-point dtype, got ", describe(image));
  if (std::max(x.size(1), x.size(2)) > PNG_UINT_31_MAX / 8)
    throw ShapeError(kOp, "is too large for a PNG file: ", describe(image));
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(x.size(2));
  png.height = static_cast<png_uint_32>(x.size(1));
  png.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  const std::vector<uint8_t> pixels = pixels_of(x);
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string out(bytes, '\0');
  if (!png_image_write_to_memory(&png, out.data(), &bytes, 0, pixels.data(), 0, nullptr))
    throw ValueError(kOp, "libpng cannot encode ", describe(image), ": ", png.message);
  out.resize(bytes);
  return out;
}

void save_image(const std::filesystem::path& path, const Tensor& images, const GridOptions& options) {
  const std::string png = encode_png(make_grid(images, options));
  AtomicFile file(path, {.op = "save_image"});
  file.write(png.data(), static_cast<int64_t>(png.size()));
  file.commit();
}

}  // namespace gradus::io
