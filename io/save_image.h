// Writes tensors as PNG files; make_grid arranges a batch of images in one image.
//
//   io::save_image("samples.png", generator(noise), {.nrow = 8, .normalize = true});
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "gradus/tensor/tensor.h"

namespace gradus::io {

// torchvision's names and defaults.
struct GridOptions {
  int64_t nrow = 8;        // images in a row
  int64_t padding = 2;     // pixels between images and around the grid
  bool normalize = false;  // clamp to value_range, and map value_range linearly to [0, 1]
  // {low, high}; nullopt: the smallest and the largest value of all images.
  std::optional<std::pair<double, double>> value_range = std::nullopt;
  bool scale_each = false;  // without value_range: normalize each image by its own smallest and largest value
  double pad_value = 0;     // value of padding pixels
};

// Arranges a batch [N,C,H,W] as one image [C,H',W'], row by row, as torchvision's make_grid. One-channel images
// are converted to three channels. A single image ([C,H,W], [H,W] or N = 1) gets no border. The result has
// the dtype and device of `images`, or with `normalize` is f32 on the CPU.
//
// `images` may have any dtype and device. Nothing is recorded for gradients, here and below.
// Errors: ShapeError for other shapes or no pixels; ValueError for nrow < 1, padding < 0, or an empty
// value_range.
Tensor make_grid(const Tensor& images, const GridOptions& options = {});

// Returns the bytes of a PNG file with an image [C,H,W] of 1 (gray), 3 (RGB) or 4 (RGBA) channels, or [H,W].
// u8 values are unchanged; floats are clamped to [0, 1], scaled to 255 and rounded; NaN becomes 0.
//
// Errors: ShapeError for other shapes; DTypeError for other dtypes.
std::string encode_png(const Tensor& image);

// Writes an image, or a batch as a grid, as a PNG file, atomically (AtomicFile).
// Errors: those of make_grid, encode_png and AtomicFile.
void save_image(const std::filesystem::path& path, const Tensor& images, const GridOptions& options = {});

}  // namespace gradus::io
