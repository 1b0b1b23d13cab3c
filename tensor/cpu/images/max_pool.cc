// Max pooling kernels compiled per instruction set: forward with indices of the maxima, the backward scatter,
// and the fused gradient of relu and max pooling. Tensors are channels-last f32 or bf16, [N, C, input...] and
// [N, C, output...]; vectors run along C, and the running maxima of a window stay in a register. An index is
// the row-major number of a pixel in its window, in u8, so a window has at most 256 pixels, except in the
// fused gradient, which has no indices.
#include "gradus/tensor/cpu/images/pool_windows.h"

#include <limits>
#include <span>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/images/max_pool.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/vectors-inl.h"
#include "gradus/tensor/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

// Calls f(tag, first channel) for vectors that cover C channels. If kLanes does not divide C, the last vector
// overlaps the one before it. Fewer than kLanes channels are processed one by one.
template <class F> HWY_INLINE void for_each_vector(int64_t C, const F& f) {
  int64_t c = 0;
  for (; c + kLanes <= C; c += kLanes) f(kFloats, c);
  if (c == C) return;
  if (C >= kLanes) return f(kFloats, C - kLanes);
  for (; c < C; ++c) f(hn::CappedTag<float, 1>(), c);
}

// to[c] = maximum over the pixels of a window (NaN if any is NaN), indices[c] = number of the first pixel with
// this value, or of the last NaN. `indices` may be null.
template <class T>
void pool_window(T* to, uint8_t* indices, const T* from, std::span<const WindowPixel> pixels, int64_t C) {
  for_each_vector(C, [&](auto d, int64_t c) HWY_ATTR {
    using D = decltype(d);
    const hn::RebindToSigned<D> words;
    const hn::Rebind<uint8_t, D> bytes;
    hn::Vec<D> best = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto argmax = hn::Set(words, pixels.empty() ? 0 : pixels[0].kernel_index);
    for (const WindowPixel& pixel : pixels) {
      const hn::Vec<D> v = load(d, from + pixel.offset + c);
      const auto is_max = hn::Or(v > best, hn::IsNaN(v));
      best = hn::IfThenElse(is_max, v, best);
      argmax = hn::IfThenElse(hn::RebindMask(words, is_max), hn::Set(words, pixel.kernel_index), argmax);
    }
    store(d, best, to + c);
    if (indices) hn::StoreU(hn::DemoteTo(bytes, argmax), bytes, indices + c);
  });
}

// The gradient of one input pixel: to[c] = sum of dy[c] over the windows whose maximum it is. A WindowPixel
// of `windows` describes one window that covers the pixel: its offset in dy, and the pixel's number in it.
template <class T>
void sum_grads(T* to, const T* dy, const uint8_t* index, std::span<const WindowPixel> windows, int64_t C) {
  for_each_vector(C, [&](auto d, int64_t c) HWY_ATTR {
    using D = decltype(d);
    const hn::RebindToSigned<D> words;
    const hn::Rebind<uint8_t, D> bytes;
    hn::Vec<D> sum = hn::Zero(d);
    for (const WindowPixel& window : windows) {
      const auto argmax = hn::PromoteTo(words, hn::LoadU(bytes, index + window.offset + c));
      const auto is_argmax = hn::RebindMask(d, argmax == hn::Set(words, window.kernel_index));
      sum = sum + hn::IfThenElseZero(is_argmax, load(d, dy + window.offset + c));
    }
    store(d, sum, to + c);
  });
}

// Along one axis: a window that covers a given position, and the number of the position within the window.
struct CoveringWindow {
  int64_t window, kernel_index;
};
using CoveringWindows = std::vector<std::vector<CoveringWindow>>;

// Returns, for each input position of an axis, the windows that cover it, in order.
CoveringWindows covering_windows(const PoolWindows& w, int64_t Size3::*axis) {
  CoveringWindows covering(w.input.*axis);
  for (int64_t i = 0; i < w.output.*axis; ++i) {
    const WindowRange s = range_of(w, axis, i);
    for (int64_t k = s.first; k < s.last; ++k) covering[s.origin + k * s.step].push_back({i, k});
  }
  return covering;
}

template <class T> void pool(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w) {
  uint8_t* const indices = index.defined() ? index.ptr<uint8_t>() : nullptr;
  for_all_windows(w, x.size(0), x.size(1), [&](const Window& window) {
    pool_window(y.ptr<T>() + window.output_offset, indices ? indices + window.output_offset : nullptr,
                x.ptr<T>() + window.image_offset, window.pixels, x.size(1));
  });
}

// Each input pixel sums its gradient over the windows that cover it, in order of windows: no races, and a
// bf16 sum is rounded once.
template <class T>
void scatter(const Tensor& dx, const Tensor& dy, const Tensor& index, const PoolWindows& w) {
  const CoveringWindows slices = covering_windows(w, &Size3::d), rows = covering_windows(w, &Size3::h),
                        columns = covering_windows(w, &Size3::w);
  const int64_t C = dx.size(1), image = output_rows(w) * w.output.w * C;
  const auto sum_grads_of_row = [&](int64_t row, std::vector<WindowPixel>& windows) {
    const int64_t h = row % w.input.h, d = row / w.input.h % w.input.d, n = row / w.input.h / w.input.d;
    for (int64_t v = 0; v < w.input.w; ++v) {
      windows.clear();
      for (const CoveringWindow& l : slices[d])
        for (const CoveringWindow& i : rows[h])
          for (const CoveringWindow& j : columns[v])
            windows.push_back(
                {int32_t((l.kernel_index * w.kernel.h + i.kernel_index) * w.kernel.w + j.kernel_index),
                 ((l.window * w.output.h + i.window) * w.output.w + j.window) * C});
      sum_grads(dx.ptr<T>() + (row * w.input.w + v) * C, dy.ptr<T>() + n * image,
                index.ptr<uint8_t>() + n * image, windows, C);
    }
  };
  const int64_t grain = 1 + 16384 / (1 + w.input.w * C);
  parallel_for(0, dx.size(0) * w.input.d * w.input.h, grain, [&](int64_t first, int64_t last) {
    std::vector<WindowPixel> windows;
    for (int64_t row = first; row < last; ++row) sum_grads_of_row(row, windows);
  });
}

// Replaces the pixels of a window by the gradient of max_pool(relu(pixel)): dy at the first maximum if this
// maximum is positive, else 0. Works in place, so vectors of channels must not overlap. Windows must not
// overlap either; replace_by_relu_grad has the further limits.
template <class T>
HWY_INLINE void replace_window(T* in, const T* dy, std::span<const WindowPixel> pixels, int64_t C) {
  const auto replace = [&](auto d, int64_t c) HWY_ATTR {
    const auto zero = hn::Zero(d);
    auto best = zero;
    for (const WindowPixel& pixel : pixels) {
      const auto v = load(d, in + pixel.offset + c);
      best = hn::IfThenElse(v > best, v, best);
    }
    auto remaining = hn::IfThenElseZero(best > zero, load(d, dy + c));  // 0 once a pixel has received it
    for (const WindowPixel& pixel : pixels) {
      const auto is_max = load(d, in + pixel.offset + c) == best;
      store(d, hn::IfThenElseZero(is_max, remaining), in + pixel.offset + c);
      remaining = hn::IfThenZeroElse(is_max, remaining);
    }
  };
  int64_t c = 0;
  for (; c + kLanes <= C; c += kLanes) replace(kFloats, c);
  for (; c < C; ++c) replace(hn::CappedTag<float, 1>(), c);
}

template <class T> void relu_grad(const Tensor& x, const Tensor& dy, const PoolWindows& w) {
  replace_by_relu_grad<T>(x, dy, w, &replace_window<T>);
}

void max_pool(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w) {
  x.dtype() == DType::kF32 ? pool<float>(y, index, x, w) : pool<bf16>(y, index, x, w);
}
void max_pool_scatter(const Tensor& dx, const Tensor& dy, const Tensor& index, const PoolWindows& w) {
  dx.dtype() == DType::kF32 ? scatter<float>(dx, dy, index, w) : scatter<bf16>(dx, dy, index, w);
}

void max_pool_relu_grad(const Tensor& x, const Tensor& dy, const PoolWindows& w) {
  x.dtype() == DType::kF32 ? relu_grad<float>(x, dy, w) : relu_grad<bf16>(x, dy, w);
}

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradus::cpu {

bool prefers_max_pool_in_registers(const Tensor& x, const PoolWindows& w) {
  return (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) && w.kernel_numel() <= 256;
}
void max_pool_in_registers(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w) {
  GRADUS_DISPATCH(max_pool)(y, index, x, w);
}
void max_pool_scatter_in_registers(const Tensor& dx, const Tensor& dy, const Tensor& index,
                                   const PoolWindows& w) {
  GRADUS_DISPATCH(max_pool_scatter)(dx, dy, index, w);
}
void max_pool_relu_grad_in_registers(const Tensor& x, const Tensor& dy, const PoolWindows& w) {
  GRADUS_DISPATCH(max_pool_relu_grad)(x, dy, w);
}

}  // namespace gradus::cpu
#endif
