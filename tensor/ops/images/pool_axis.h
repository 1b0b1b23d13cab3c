// The windows of pooling along one axis, for CPU and GPU kernels: a pooling window is the product of one
// window per axis. `window` is the index of a window (output position), a cell one of its kernel elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus {

// One axis of PoolWindows (pool.h). N is an integer type that can represent the sum of input, padding on both
// sides, window and stride.
template <class N> struct PoolAxis {
  N in, out, kernel, stride, padding, dilation;
  bool adaptive;
};

// The cells of one window: cell k is at input position origin + k * step; cells [first, last) are inside the
// input, empty if first >= last. padded_length: the cells in input and padding, for dilation 1.
template <class N> struct PoolWindow {
  N first, last, origin, step, padded_length;

  GRADUS_HOST_DEVICE N position_of(N cell) const { return origin + cell * step; }
  GRADUS_HOST_DEVICE bool contains(N cell) const { return first <= cell && cell < last; }
};

// Returns the cells of a window.
template <class N> GRADUS_HOST_DEVICE PoolWindow<N> window_of(const PoolAxis<N>& a, N window) {
  if (a.adaptive) {
    const auto begin = static_cast<N>(int64_t(window) * a.in / a.out),
               end = static_cast<N>(((int64_t(window) + 1) * a.in + a.out - 1) / a.out);
    return {0, end - begin, begin, 1, end - begin};
  }
  const N origin = window * a.stride - a.padding;
  const N first = origin < 0 ? (-origin + a.dilation - 1) / a.dilation : 0;
  const N last = std::min(a.kernel, (a.in - origin + a.dilation - 1) / a.dilation);
  return {first, last, origin, a.dilation, std::min(origin + a.kernel, a.in + a.padding) - origin};
}

// A range [first, last) of windows that includes all windows over an input position.
template <class N> struct PoolRange {
  N first, last;
};
template <class N> GRADUS_HOST_DEVICE PoolRange<N> windows_over(const PoolAxis<N>& a, N position) {
  if (a.adaptive)
    return {static_cast<N>(int64_t(position) * a.out / a.in),
            static_cast<N>(((int64_t(position) + 1) * a.out + a.in - 1) / a.in)};
  const N before = position + a.padding - a.dilation * (a.kernel - 1);
  return {before > 0 ? (before + a.stride - 1) / a.stride : 0,
          std::min(a.out, (position + a.padding) / a.stride + 1)};
}

// Returns the index of the window's cell at an input position, -1 if there is none.
template <class N> GRADUS_HOST_DEVICE N cell_at(const PoolWindow<N>& window, N position) {
  const N cell = (position - window.origin) / window.step;
  return window.contains(cell) && window.position_of(cell) == position ? cell : -1;
}

}  // namespace gradus
