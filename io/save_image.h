// Images out of tensors: PNG files, and grids of many images in one.
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
  bool normalize = false;  // shift and scale value_range to [0, 1]; the result is f32
  // By default, the smallest and the largest value.
  std::optional<std::pair<double, double>> value_range = std::nullopt;
  bool scale_each = false;  // each image by its own smallest and largest value
  double pad_value = 0;
};

// Lays a batch [N,C,H,W] out as one image [C,H',W'], row by row, as torchvision's make_grid does. Images of
// one channel become images of three. A single image gets no border. [C,H,W] and [H,W] are single images.
//
// Errors: ShapeError for other shapes or no images; ValueError for nrow < 1, padding < 0, or a value_range
// that does not begin below its end.
Tensor make_grid(const Tensor& images, const GridOptions& options = {});

// Returns an image [C,H,W] with 1 (gray), 3 (RGB) or 4 (RGBA) channels, or [H,W], as a PNG file's bytes. u8
// values stay as they are. Floating-point values in [0, 1] are scaled to 0 ... 255 and rounded. Values
// outside are cut off, and NaN becomes 0.
//
// Errors: ShapeError for other shapes; DTypeError for other dtypes.
std::string encode_png(const Tensor& image);

// Writes an image, or a batch as a grid, as a PNG file (atomically: AtomicFile).
// Errors: those of make_grid, encode_png and AtomicFile.
void save_image(const std::filesystem::path& path, const Tensor& images, const GridOptions& options = {});

}  // namespace gradus::io
