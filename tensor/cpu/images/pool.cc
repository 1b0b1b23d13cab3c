// Pooling on the CPU. Images are channels-last, so each cell of a window is a run of C neighbors. The loops
// work on whole runs, or on vectors of neighboring channels where a window's state is to stay in registers.
#include "gradus/tensor/ops/images/pool.h"
#include "gradus/tensor/kernel.h"

#include <limits>
#include <span>
#include <type_traits>

#include "gradus/tensor/cpu/images/max_pool.h"
#include "gradus/tensor/cpu/images/pool_windows.h"
#include "gradus/tensor/cpu/widen.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

using namespace cpu;

// N neighboring channels. Comparisons give lanes of all ones or all zeros, by which `? :` selects.
template <class T, int N>
using Vector [[gnu::vector_size(N * sizeof(T)), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
template <class T> using IntegerLike = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

template <int N, class T> Vector<T, N>& lanes(T* p) { return *reinterpret_cast<Vector<T, N>*>(p); }
template <int N, class T> const Vector<T, N>& lanes(const T* p) {
  return *reinterpret_cast<const Vector<T, N>*>(p);
}

// Calls f(number of lanes, first channel) until all C channels are covered: with vectors of 32 bytes, then
// with single channels.
template <class T, class F> void for_each_vector(int64_t C, F f) {
  constexpr int kLanes = 32 / sizeof(T);
  int64_t c = 0;
  for (; c + kLanes <= C; c += kLanes) f(std::integral_constant<int, kLanes>(), c);
  for (; c < C; ++c) f(std::integral_constant<int, 1>(), c);
}

// `where` may be null.
template <class T, class I>
void max_forward(const Tensor& y, I* where, const Tensor& x, const PoolWindows& w) {
  const int64_t C = x.size(1), image = image_elements(w, C);
  const auto pool = [=, from = x.ptr<T>(), to = y.ptr<T>()](const Window& window) {
    const int32_t none = window.cells.empty() ? 0 : window.cells[0].number;
    for_each_vector<T>(C, [=](auto count, int64_t c) {
      constexpr int N = decltype(count)::value;
      using Integers = Vector<IntegerLike<T>, N>;
      Vector<T, N> best = Vector<T, N>{} - std::numeric_limits<T>::infinity();
      Integers winner = Integers{} + none;
      for (const Cell& cell : window.cells) {
        const Vector<T, N> v = lanes<N>(from + window.image * image + cell.offset + c);
        const auto wins = (v > best) | (v != v);
        best = wins ? v : best;
        if (where) winner = wins ? Integers{} + cell.number : winner;
      }
      lanes<N>(to + window.at + c) = best;
      if (where) lanes<N>(where + window.at + c) = __builtin_convertvector(winner, Vector<I, N>);
    });
  };
  parallel_for(0, x.size(0) * output_rows(w), row_grain(w, C),
               [&](int64_t first, int64_t last) { for_each_window(w, C, first, last, pool); });
}

template <class F> void dispatch_index(DType t, F f) {
  t == DType::kU8 ? f.template operator()<uint8_t>() : f.template operator()<int32_t>();
}

void max_pool_cpu(const Tensor& y, const Tensor& index, const Tensor& x, PoolWindows w) {
  if (prefers_max_pool_in_registers(x, w)) return max_pool_in_registers(y, index, x, w);
  if (is_narrow(x.dtype())) {
    const Tensor wide_y = wide_like(y);
    max_pool_cpu(wide_y, index, widened(x), w);
    return round_to(y, wide_y);
  }
  dispatch_floating(x.dtype(), "max_pool", [&]<class T>() {
    if (!index.defined()) return max_forward<T, uint8_t>(y, nullptr, x, w);
    dispatch_index(index.dtype(), [&]<class I>() { max_forward<T, I>(y, index.ptr<I>(), x, w); });
  });
}

void max_pool_scatter_cpu(const Tensor& dx, const Tensor& dy, const Tensor& index, PoolWindows w) {
  if (prefers_max_pool_in_registers(dy, w)) return max_pool_scatter_in_registers(dx, dy, index, w);
  if (is_narrow(dy.dtype())) {
    const Tensor wide_dx = wide_like(dx);
    max_pool_scatter_cpu(wide_dx, widened(dy), index, w);
    return round_to(dx, wide_dx);
  }
  const int64_t C = dx.size(1), image = image_elements(w, C);
  dispatch_floating(dx.dtype(), "max_pool_scatter", [&]<class T>() {
    dispatch_index(index.dtype(), [&]<class I>() {
      parallel_for(0, dx.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
        std::fill(dx.ptr<T>() + first * image, dx.ptr<T>() + last * image, T(0));
        for_each_window(w, C, first * output_rows(w), last * output_rows(w), [&](const Window& window) {
          const T* __restrict from = dy.ptr<T>() + window.at;
          const I* __restrict where = index.ptr<I>() + window.at;
          for (const Cell& cell : window.cells) {
            T* __restrict to = dx.ptr<T>() + window.image * image + cell.offset;
            for (int64_t c = 0; c < C; ++c) to[c] += where[c] == I(cell.number) ? from[c] : T(0);
          }
        });
      });
    });
  });
}

void max_pool_gather_cpu(const Tensor& y, const Tensor& x, const Tensor& index, PoolWindows w) {
  const int64_t C = x.size(1), image = image_elements(w, C);
  dispatch_floating(x.dtype(), "max_pool_gather", [&]<class T>() {
    dispatch_index(index.dtype(), [&]<class I>() {
      parallel_for(0, x.size(0) * output_rows(w), row_grain(w, C), [&](int64_t first, int64_t last) {
        for_each_window(w, C, first, last, [&](const Window& window) {
          T* __restrict to = y.ptr<T>() + window.at;
          const I* __restrict where = index.ptr<I>() + window.at;
          std::fill_n(to, C, T(0));
          for (const Cell& cell : window.cells) {
            const T* __restrict from = x.ptr<T>() + window.image * image + cell.offset;
            for (int64_t c = 0; c < C; ++c) to[c] = where[c] == I(cell.number) ? from[c] : to[c];
          }
        });
      });
    });
  });
}

void max_pool_positions_cpu(const Tensor& positions, const Tensor& index, PoolWindows w) {
  const int64_t C = index.size(1);
  dispatch_index(index.dtype(), [&]<class I>() {
    parallel_for(0, index.size(0) * output_rows(w), row_grain(w, C), [&](int64_t first, int64_t last) {
      for_each_window(w, C, first, last, [&](const Window& window) {
        for (int64_t c = 0; c < C; ++c)
          for (const Cell& cell : window.cells)
            if (index.ptr<I>()[window.at + c] == I(cell.number))
              positions.ptr<int64_t>()[window.at + c] = cell.offset / C;
      });
    });
  });
}

// Returns one over the number by which a window's sum is divided.
template <class T> T weight_of(const PoolWindows& w, const Window& window) {
  if (w.divisor) return T(1) / T(w.divisor);
  return T(1) / T(w.count_include_pad ? window.padded_size : int64_t(window.cells.size()));
}

// Writes the means over a window's cells for Count vectors of N channels.
template <int N, int Count, class T>
void mean_of_cells(T* to, const T* from, std::span<const Cell> cells, T weight) {
  Vector<T, N> sums[Count] = {};
  for (const Cell& cell : cells)
    for (int i = 0; i < Count; ++i) sums[i] += lanes<N>(from + cell.offset + i * N);
  for (int i = 0; i < Count; ++i) lanes<N>(to + i * N) = sums[i] * weight;
}

void avg_pool_cpu(const Tensor& y, const Tensor& x, PoolWindows w) {
  const int64_t C = x.size(1), image = image_elements(w, C);
  dispatch_floating(x.dtype(), "avg_pool", [&]<class T>() {
    constexpr int kLanes = 32 / sizeof(T);
    parallel_for(0, x.size(0) * output_rows(w), row_grain(w, C), [&](int64_t first, int64_t last) {
      for_each_window(w, C, first, last, [&](const Window& window) {
        const T weight = weight_of<T>(w, window);
        const T* from = x.ptr<T>() + window.image * image;
        T* to = y.ptr<T>() + window.at;
        int64_t c = 0;
        for (; c + 4 * kLanes <= C; c += 4 * kLanes)
          mean_of_cells<kLanes, 4>(to + c, from + c, window.cells, weight);
        for (; c + kLanes <= C; c += kLanes) mean_of_cells<kLanes, 1>(to + c, from + c, window.cells, weight);
        for (; c < C; ++c) mean_of_cells<1, 1>(to + c, from + c, window.cells, weight);
      });
    });
  });
}

void avg_pool_spread_cpu(const Tensor& dx, const Tensor& dy, PoolWindows w) {
  const int64_t C = dx.size(1), image = image_elements(w, C);
  dispatch_floating(dx.dtype(), "avg_pool_spread", [&]<class T>() {
    parallel_for(0, dx.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
      std::fill(dx.ptr<T>() + first * image, dx.ptr<T>() + last * image, T(0));
      for_each_window(w, C, first * output_rows(w), last * output_rows(w), [&](const Window& window) {
        const T* __restrict from = dy.ptr<T>() + window.at;
        const T weight = weight_of<T>(w, window);
        for (const Cell& cell : window.cells) {
          T* __restrict to = dx.ptr<T>() + window.image * image + cell.offset;
          for (int64_t c = 0; c < C; ++c) to[c] += from[c] * weight;
        }
      });
    });
  });
}

// Writes zeros to the cells of a signal or an image that lie in no window.
template <class T> void clear_uncovered(T* image, int64_t C, const PoolWindows& w) {
  auto covered = [](int64_t i, int64_t stride, int64_t kernel, int64_t count) {
    return i / stride < count && i % stride < kernel;
  };
  for (int64_t h = 0; h < w.input.h; ++h)
    for (int64_t v = 0; v < w.input.w; ++v)
      if (!covered(h, w.stride.h, w.kernel.h, w.output.h) || !covered(v, w.stride.w, w.kernel.w, w.output.w))
        std::fill_n(image + (h * w.input.w + v) * C, C, T(0));
}

// x's buffer becomes the gradient in one pass: each window is read and overwritten before the next one.
template <class T> void relu_grad(const Tensor& x, const Tensor& dy, const PoolWindows& w) {
  const int64_t C = x.size(1), image = image_elements(w, C);
  const auto replace = [=, cells = x.ptr<T>(), from = dy.ptr<T>()](const Window& window) {
    for_each_vector<T>(C, [=](auto count, int64_t c) {
      constexpr int N = decltype(count)::value;
      T* in = cells + window.image * image + c;
      Vector<T, N> best{};
      for (const Cell& cell : window.cells) {
        const Vector<T, N> v = lanes<N>(in + cell.offset);
        best = v > best ? v : best;
      }
      Vector<T, N> left = lanes<N>(from + window.at + c);  // dy until a cell has taken it, then 0
      left = best > 0 ? left : Vector<T, N>{};
      for (const Cell& cell : window.cells) {
        const auto wins = lanes<N>(in + cell.offset) == best;
        lanes<N>(in + cell.offset) = wins ? left : Vector<T, N>{};
        left = wins ? Vector<T, N>{} : left;
      }
    });
  };
  const bool all_covered =
      w.kernel == w.stride && w.output.h * w.stride.h >= w.input.h && w.output.w * w.stride.w >= w.input.w;
  parallel_for(0, x.size(0), image_grain(w, C), [&](int64_t first, int64_t last) {
    for_each_window(w, C, first * output_rows(w), last * output_rows(w), replace);
    if (!all_covered)
      for (int64_t n = first; n < last; ++n) clear_uncovered(x.ptr<T>() + n * image, C, w);
  });
}

void max_pool_relu_grad_cpu(const Tensor& x, const Tensor& dy, PoolWindows w) {
  dispatch_floating(x.dtype(), "max_pool_relu_grad_", [&]<class T>() { relu_grad<T>(x, dy, w); });
}

}  // namespace
}  // namespace gradus

namespace gradus::raw {

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
