// Enumerates the windows of 1- to 3-dim pooling over channels-last images [N, C, (D, (H,)) W], each as a list of
// its pixels inside the image. Offsets count elements. PoolWindows is the geometry of a pooling.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "gradus/tensor/ops/images/pool.h"
#include "gradus/tensor/ops/images/pool_axis.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::cpu {

using WindowRange = PoolWindow<int64_t>;
using Axis = PoolAxis<int64_t>;

// Returns the range of input positions along an axis that output index i covers.
inline WindowRange range_of(const PoolWindows& w, int64_t Size3::*axis, int64_t i) {
  return window_of(Axis{w.input.*axis, w.output.*axis, w.kernel.*axis, w.stride.*axis, w.padding.*axis,
                        w.dilation.*axis, w.adaptive},
                   i);
}

// One pixel of a window: its row-major index within the kernel, and the offset of its C channels in the image.
struct WindowPixel {
  int32_t kernel_index;
  int64_t offset;
};
struct Window {
  int64_t image_offset;                 // offset of the input image
  int64_t output_offset;                // offset of the output pixel's C channels
  std::span<const WindowPixel> pixels;  // pixels inside the image
  int64_t padded_pixels;                // number of pixels including padding
};

// The number of output rows, and of input elements, of one image.
inline int64_t output_rows(const PoolWindows& w) { return w.output.d * w.output.h; }
inline int64_t image_elements(const PoolWindows& w, int64_t C) {
  return w.input.d * w.input.h * w.input.w * C;
}

// Writes the pixels inside the image of the window slices x rows x columns to `pixels`. Returns their number.
inline size_t list_pixels(const PoolWindows& w, int64_t C, const WindowRange& slices, const WindowRange& rows,
                          const WindowRange& columns, WindowPixel* pixels) {
  size_t count = 0;
  for (int64_t l = slices.first; l < slices.last; ++l)
    for (int64_t i = rows.first; i < rows.last; ++i) {
      const int64_t slice = slices.origin + l * slices.step, row = rows.origin + i * rows.step;
      for (int64_t j = columns.first; j < columns.last; ++j)
        pixels[count++] = {int32_t((l * w.kernel.h + i) * w.kernel.w + j),
                           ((slice * w.input.h + row) * w.input.w + columns.origin + j * columns.step) * C};
    }
  return count;
}

// Returns an upper bound of the number of pixels that a window has inside the image.
inline int64_t max_pixels(const PoolWindows& w) {
  const auto along = [](int64_t kernel, int64_t in, int64_t dilation) {
    return std::min(kernel, (in + dilation - 1) / dilation);
  };
  return along(w.kernel.d, w.input.d, w.dilation.d) * along(w.kernel.h, w.input.h, w.dilation.h) *
         along(w.kernel.w, w.input.w, w.dilation.w);
}

// Calls f(window) for the windows of output rows [first_row, last_row), numbered through all images.
template <class F>
void for_each_window(const PoolWindows& w, int64_t C, int64_t first_row, int64_t last_row, F f) {
  std::vector<WindowPixel> pixels(max_pixels(w));
  for (int64_t row = first_row; row < last_row; ++row) {
    const WindowRange slices = range_of(w, &Size3::d, row / w.output.h % w.output.d),
                      rows = range_of(w, &Size3::h, row % w.output.h);
    for (int64_t q = 0; q < w.output.w; ++q) {
      const WindowRange columns = range_of(w, &Size3::w, q);
      const size_t count = list_pixels(w, C, slices, rows, columns, pixels.data());
      f(Window{row / output_rows(w) * image_elements(w, C),
               (row * w.output.w + q) * C,
               {pixels.data(), count},
               slices.padded_length * rows.padded_length * columns.padded_length});
    }
  }
}

// Calls f(window) in parallel for the windows of N images. Threads divide the output rows.
template <class F> void for_all_windows(const PoolWindows& w, int64_t N, int64_t C, F f) {
  const int64_t grain = 1 + 16384 / (1 + w.output.w * C * max_pixels(w));
  parallel_for(0, N * output_rows(w), grain,
               [&](int64_t first, int64_t last) { for_each_window(w, C, first, last, f); });
}
// Minimum number of images per thread, for kernels that write to input pixels. Overlapping windows share pixels,
// so one thread processes a whole image.
inline int64_t image_grain(const PoolWindows& w, int64_t C) {
  return 1 + 16384 / (1 + output_rows(w) * w.output.w * C * max_pixels(w));
}

// Writes zeros to the pixels of a 1-dim or 2-dim image outside of all windows. Requires no padding and no
// dilation.
template <class T> void clear_uncovered(T* image, int64_t C, const PoolWindows& w) {
  auto covered = [](int64_t i, int64_t stride, int64_t kernel, int64_t count) {
    return i / stride < count && i % stride < kernel;
  };
  for (int64_t h = 0; h < w.input.h; ++h)
    for (int64_t v = 0; v < w.input.w; ++v)
      if (!covered(h, w.stride.h, w.kernel.h, w.output.h) || !covered(v, w.stride.w, w.kernel.w, w.output.w))
        std::fill_n(image + (h * w.input.w + v) * C, C, T(0));
}

// Overwrites x by the gradient of max_pool(relu(x)). Requires 1 or 2 dims and windows that do not overlap,
// without padding: replace(image, dy of the window, pixels, C) reads and overwrites the pixels of one window.
template <class T, class Replace>
void replace_by_relu_grad(const Tensor& x, const Tensor& dy, const PoolWindows& w, Replace replace) {
  const int64_t C = x.size(1), image = image_elements(w, C);
  const bool all_covered =
      w.kernel == w.stride && w.output.h * w.stride.h >= w.input.h && w.output.w * w.stride.w >= w.input.w;
  parallel_for(0, x.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
    for_each_window(w, C, first * output_rows(w), last * output_rows(w), [&](const Window& window) {
      replace(x.ptr<T>() + window.image_offset, dy.ptr<T>() + window.output_offset, window.pixels, C);
    });
    if (!all_covered)
      for (int64_t n = first; n < last; ++n) clear_uncovered(x.ptr<T>() + n * image, C, w);
  });
}

// Max pooling of f32 and bf16 images in vectors (max_pool.cc): the running maxima of a window, for a vector of
// channels, stay in a register.

// Returns whether max_pool_in_registers and max_pool_scatter_in_registers support this pooling: f32 or bf16, and
// windows of up to 256 pixels.
bool prefers_max_pool_in_registers(const Tensor& x, const PoolWindows& w);

// Compute what raw::max_pool_kernel and raw::max_pool_scatter_kernel compute. `index` is u8, or undefined in the
// forward.
void max_pool_in_registers(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w);
void max_pool_scatter_in_registers(const Tensor& dx, const Tensor& dy, const Tensor& index,
                                   const PoolWindows& w);
// Computes what raw::max_pool_relu_grad_kernel computes, for f32 and bf16 and windows of any size.
void max_pool_relu_grad_in_registers(const Tensor& x, const Tensor& dy, const PoolWindows& w);

}  // namespace gradus::cpu
