// CPU kernels of max and average pooling and their gradients, in 1 to 3 dims: x or dx [N, C, input...], y, dy
// and index [N, C, output...]. The callers in gradus/tensor/ops/images/pool.cc guarantee shapes, dtypes, and
// channels-last memory, so each pixel (position) of a window is C adjacent elements, over which the inner
// loops run. max_pool, its scatter and the fused relu gradient take all floating dtypes, the others f32 and
// f64. Threads divide output rows, or images in gradients. Fast max pooling of f32 and bf16 is in
// max_pool.cc.
#include "gradus/tensor/ops/images/pool.h"
#include "gradus/tensor/kernel.h"

#include <limits>
#include <span>
#include <utility>

#include "gradus/tensor/cpu/images/pool_windows.h"
#include "gradus/tensor/cpu/widen.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

using namespace cpu;

// y = maximum over each window; indices = number of the first pixel with the maximum. If a window has NaNs, y
// is NaN, and the number is that of its last NaN. `indices` may be null.
template <class T, class I>
void max_forward(const Tensor& y, I* indices, const Tensor& x, const PoolWindows& w) {
  const int64_t C = x.size(1);
  for_all_windows(w, x.size(0), C, [&](const Window& window) {
    T* __restrict best = y.ptr<T>() + window.output_offset;
    std::fill_n(best, C, -std::numeric_limits<T>::infinity());
    I* __restrict argmax = indices ? indices + window.output_offset : nullptr;
    if (indices) std::fill_n(argmax, C, I(window.pixels.empty() ? 0 : window.pixels[0].kernel_index));
    for (const WindowPixel& pixel : window.pixels) {
      const T* __restrict v = x.ptr<T>() + window.image_offset + pixel.offset;
      for (int64_t c = 0; c < C; ++c) {
        const bool is_max = v[c] > best[c] || v[c] != v[c];
        best[c] = is_max ? v[c] : best[c];
        if (indices) argmax[c] = is_max ? I(pixel.kernel_index) : argmax[c];
      }
    }
  });
}

// Calls f<I>() for the type of indices: u8, or i32 for windows of more than 256 pixels.
template <class F> void dispatch_index(DType t, F f) {
  t == DType::kU8 ? f.template operator()<uint8_t>() : f.template operator()<int32_t>();
}

void max_pool_cpu(const Tensor& y, const Tensor& index, const Tensor& x, PoolWindows w) {
  if (prefers_max_pool_in_registers(x, w)) return max_pool_in_registers(y, index, x, w);
  if (is_16_bit_float(x.dtype()))
    return compute_in_f32(y, [&](const Tensor& wide_y) { max_pool_cpu(wide_y, index, to_f32(x), w); });
  dispatch_floating(x.dtype(), "max_pool", [&]<class T>() {
    if (!index.defined()) return max_forward<T, uint8_t>(y, nullptr, x, w);
    dispatch_index(index.dtype(), [&]<class I>() { max_forward<T, I>(y, index.ptr<I>(), x, w); });
  });
}

// Sets dx to zero, then calls f(window, pointer to the window's image in dx) for all windows. One thread
// processes an image.
template <class T, class F> void scatter_windows(const Tensor& dx, const PoolWindows& w, F f) {
  const int64_t C = dx.size(1), image = image_elements(w, C), rows = output_rows(w);
  parallel_for(0, dx.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
    std::fill(dx.ptr<T>() + first * image, dx.ptr<T>() + last * image, T(0));
    for_each_window(w, C, first * rows, last * rows,
                    [&](const Window& window) { f(window, dx.ptr<T>() + window.image_offset); });
  });
}

void max_pool_scatter_cpu(const Tensor& dx, const Tensor& dy, const Tensor& index, PoolWindows w) {
  if (prefers_max_pool_in_registers(dy, w)) return max_pool_scatter_in_registers(dx, dy, index, w);
  if (is_16_bit_float(dy.dtype()))
    return compute_in_f32(dx, [&](const Tensor& wide) { max_pool_scatter_cpu(wide, to_f32(dy), index, w); });
  const int64_t C = dx.size(1);
  dispatch_floating(dx.dtype(), "max_pool_scatter", [&]<class T>() {
    dispatch_index(index.dtype(), [&]<class I>() {
      scatter_windows<T>(dx, w, [&](const Window& window, T* image) {
        const T* __restrict from = dy.ptr<T>() + window.output_offset;
        const I* __restrict indices = index.ptr<I>() + window.output_offset;
        for (const WindowPixel& pixel : window.pixels) {
          T* __restrict to = image + pixel.offset;
          for (int64_t c = 0; c < C; ++c) to[c] += indices[c] == I(pixel.kernel_index) ? from[c] : T(0);
        }
      });
    });
  });
}

void max_pool_gather_cpu(const Tensor& y, const Tensor& x, const Tensor& index, PoolWindows w) {
  const int64_t C = x.size(1);
  dispatch_floating(x.dtype(), "max_pool_gather", [&]<class T>() {
    dispatch_index(index.dtype(), [&]<class I>() {
      for_all_windows(w, x.size(0), C, [&](const Window& window) {
        T* __restrict to = y.ptr<T>() + window.output_offset;
        const I* __restrict indices = index.ptr<I>() + window.output_offset;
        std::fill_n(to, C, T(0));
        for (const WindowPixel& pixel : window.pixels) {
          const T* __restrict from = x.ptr<T>() + window.image_offset + pixel.offset;
          for (int64_t c = 0; c < C; ++c) to[c] = indices[c] == I(pixel.kernel_index) ? from[c] : to[c];
        }
      });
    });
  });
}

void max_pool_positions_cpu(const Tensor& positions, const Tensor& index, PoolWindows w) {
  const int64_t C = index.size(1);
  dispatch_index(index.dtype(), [&]<class I>() {
    for_all_windows(w, index.size(0), C, [&](const Window& window) {
      for (int64_t c = 0; c < C; ++c) {
        int64_t& position = positions.ptr<int64_t>()[window.output_offset + c] =
            0;  // also if it has no pixel
        for (const WindowPixel& pixel : window.pixels)
          if (index.ptr<I>()[window.output_offset + c] == I(pixel.kernel_index)) position = pixel.offset / C;
      }
    });
  });
}

// Returns 1 / divisor of a window's sum: the given divisor, or the number of its pixels, with or without padding.
template <class T> T weight_of(const PoolWindows& w, const Window& window) {
  if (w.divisor) return T(1) / T(w.divisor);
  return T(1) / T(w.count_include_pad ? window.padded_pixels : int64_t(window.pixels.size()));
}

void avg_pool_cpu(const Tensor& y, const Tensor& x, PoolWindows w) {
  const int64_t C = x.size(1);
  dispatch_floating(x.dtype(), "avg_pool", [&]<class T>() {
    for_all_windows(w, x.size(0), C, [&](const Window& window) {
      T* __restrict to = y.ptr<T>() + window.output_offset;
      std::fill_n(to, C, T(0));
      for (const WindowPixel& pixel : window.pixels) {
        const T* __restrict from = x.ptr<T>() + window.image_offset + pixel.offset;
        for (int64_t c = 0; c < C; ++c) to[c] += from[c];
      }
      const T weight = weight_of<T>(w, window);
      for (int64_t c = 0; c < C; ++c) to[c] *= weight;
    });
  });
}

void avg_pool_spread_cpu(const Tensor& dx, const Tensor& dy, PoolWindows w) {
  const int64_t C = dx.size(1);
  dispatch_floating(dx.dtype(), "avg_pool_spread", [&]<class T>() {
    scatter_windows<T>(dx, w, [&](const Window& window, T* image) {
      const T* __restrict from = dy.ptr<T>() + window.output_offset;
      const T weight = weight_of<T>(w, window);
      for (const WindowPixel& pixel : window.pixels) {
        T* __restrict to = image + pixel.offset;
        for (int64_t c = 0; c < C; ++c) to[c] += from[c] * weight;
      }
    });
  });
}

void max_pool_relu_grad_cpu(const Tensor& x, const Tensor& dy, PoolWindows w) {
  if (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) return max_pool_relu_grad_in_registers(x, dy, w);
  if (is_16_bit_float(x.dtype())) {
    const Tensor wide = to_f32(x);
    max_pool_relu_grad_cpu(wide, to_f32(dy), w);
    return round_into(x, wide);
  }
  const auto replace = [](double* in, const double* dy, std::span<const WindowPixel> pixels, int64_t C) {
    for (int64_t c = 0; c < C; ++c) {
      double best = 0;
      for (const WindowPixel& pixel : pixels) best = std::max(best, in[pixel.offset + c]);
      double remaining = best > 0 ? dy[c] : 0;
      for (const WindowPixel& pixel : pixels) {
        double& v = in[pixel.offset + c];
        v = v == best ? std::exchange(remaining, 0) : 0;
      }
    }
  };
  replace_by_relu_grad<double>(x, dy, w, replace);
}

}  // namespace

constinit decltype(max_pool_kernel) max_pool_kernel{"max_pool", &max_pool_cpu};
constinit decltype(max_pool_scatter_kernel) max_pool_scatter_kernel{"max_pool_scatter",
                                                                    &max_pool_scatter_cpu};
constinit decltype(max_pool_gather_kernel) max_pool_gather_kernel{"max_pool_gather", &max_pool_gather_cpu};
constinit decltype(max_pool_positions_kernel) max_pool_positions_kernel{"max_pool_positions",
                                                                        &max_pool_positions_cpu};
constinit decltype(avg_pool_kernel) avg_pool_kernel{"avg_pool", &avg_pool_cpu};
constinit decltype(avg_pool_spread_kernel) avg_pool_spread_kernel{"avg_pool_spread", &avg_pool_spread_cpu};
constinit decltype(max_pool_relu_grad_kernel) max_pool_relu_grad_kernel{"max_pool_relu_grad_",
                                                                        &max_pool_relu_grad_cpu};

}  // namespace gradus::raw
