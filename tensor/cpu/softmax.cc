// CPU kernels of softmax, log_softmax (log = true) and their gradients, along the dim of size n of dense f32
// or f64 tensors of one layout, seen as [outer, n, inner] by the callers; no result aliases an input:
//   softmax      y = exp(x - max(x)) / sum(exp(x - max(x)))    dx = y * (dy - sum(dy * y))
//   log_softmax  y = x - max(x) - log(sum(exp(x - max(x))))    dx = dy - exp(y) * sum(dy)
// inner = 1: rows of n adjacent elements. inner > 1: tiles of adjacent columns, vectorized across columns.
#include "gradus/tensor/ops/softmax.h"
#include "gradus/tensor/kernel.h"

#include <cmath>

#include "gradus/tensor/ops/scalar_math.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kGrain = 8192;  // minimum number of elements per thread
constexpr int64_t kTile = 256;    // elements that are summed in T; columns that are processed together

constexpr int kLanes = 16;  // SIMD lanes with separate partial results

// Returns f(0) join ... join f(n - 1), for an associative join with neutral element `start`. Long rows are
// reduced in kLanes lanes, which compilers vectorize. Short rows and the remainder are reduced in order.
template <class T, class F, class Join> T reduce_row(int64_t n, T start, F&& f, Join&& join) {
  T result = start;
  int64_t i = 0;
  if (n >= 2 * kLanes) {
    T lanes[kLanes];
    for (T& lane : lanes) lane = start;
    for (; i + kLanes <= n; i += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] = join(lanes[j], f(i + j));
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) lanes[j] = join(lanes[j], lanes[j + half]);
    result = lanes[0];
  }
  for (; i < n; ++i) result = join(result, f(i));
  return result;
}

// Returns sum f(i) for i < n. Tiles are summed in T, the sums of tiles in f64.
template <class T, class F> T row_sum(int64_t n, F&& f) {
  const auto tile_sum = [&](int64_t at) {
    return reduce_row<T>(
        std::min(kTile, n - at), 0, [&](int64_t i) { return f(at + i); }, [](T a, T b) { return a + b; });
  };
  if (n <= kTile) return tile_sum(0);
  double sum = 0;
  for (int64_t at = 0; at < n; at += kTile) sum += static_cast<double>(tile_sum(at));
  return static_cast<T>(sum);
}

template <class T> T row_max(const T* x, int64_t n) {
  return reduce_row<T>(
      n, x[0], [=](int64_t i) { return x[i]; }, [](T a, T b) { return b > a ? b : a; });
}

// One row of n adjacent elements.
template <class T> void softmax_row(T* __restrict y, const T* x, int64_t n, bool log) {
  const T maximum = row_max(x, n);
  if (log) {
    const T log_sum = std::log(row_sum<T>(n, [=](int64_t i) { return m::exp(x[i] - maximum); }));
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - maximum) - log_sum;
    return;
  }
  const T scale = 1 / row_sum<T>(n, [=](int64_t i) { return y[i] = m::exp(x[i] - maximum); });
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

constexpr int64_t kMaxShortRow = 128, kBufferSize = 2048;

// For `rows` adjacent rows of n <= kMaxShortRow elements: the exponentials of as many rows as fit into
// kBufferSize elements are computed in one long loop.
template <class T> void softmax_short_rows(T* __restrict y, const T* x, int64_t rows, int64_t n, bool log) {
  T exps[kBufferSize], normalizer[kBufferSize];
  const int64_t per_buffer = kBufferSize / n;
  for (int64_t first = 0; first < rows; first += per_buffer) {
    const int64_t count = std::min(per_buffer, rows - first);
    const T* from = x + first * n;
    T* __restrict to = y + first * n;
    for (int64_t r = 0; r < count; ++r) {
      const T* row = from + r * n;
      const T maximum = row_max(row, n);
      for (int64_t i = 0; i < n; ++i) to[r * n + i] = row[i] - maximum;
    }
    for (int64_t i = 0; i < count * n; ++i) exps[i] = m::exp(to[i]);
    for (int64_t r = 0; r < count; ++r)
      normalizer[r] = row_sum<T>(n, [=, e = exps + r * n](int64_t i) { return e[i]; });
    for (int64_t r = 0; r < count; ++r) normalizer[r] = log ? m::log(normalizer[r]) : 1 / normalizer[r];
    for (int64_t r = 0; r < count; ++r) {
      T* __restrict row = to + r * n;
      if (log) {
        for (int64_t i = 0; i < n; ++i) row[i] -= normalizer[r];
      } else {
        for (int64_t i = 0; i < n; ++i) row[i] = exps[r * n + i] * normalizer[r];
      }
    }
  }
}

// Softmax along dim 0 of `width` <= kTile adjacent columns of an [n, inner] matrix. x and y point to the
// first column.
template <class T> void softmax_columns(T* y, const T* x, int64_t n, int64_t inner, int64_t width, bool log) {
  T maximum[kTile], sum[kTile] = {}, normalizer[kTile];
  for (int64_t j = 0; j < width; ++j) maximum[j] = x[j];
  for (int64_t i = 1; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) maximum[j] = std::max(maximum[j], x[i * inner + j]);
  for (int64_t i = 0; i < n; ++i) {
    const T* from = x + i * inner;
    T* __restrict to = y + i * inner;
    if (log) {
      for (int64_t j = 0; j < width; ++j) sum[j] += m::exp(from[j] - maximum[j]);
    } else {
      for (int64_t j = 0; j < width; ++j) sum[j] += to[j] = m::exp(from[j] - maximum[j]);
    }
  }
  for (int64_t j = 0; j < width; ++j) normalizer[j] = log ? std::log(sum[j]) : 1 / sum[j];
  for (int64_t i = 0; i < n; ++i) {
    const T* from = x + i * inner;
    T* __restrict to = y + i * inner;
    if (log) {
      for (int64_t j = 0; j < width; ++j) to[j] = (from[j] - maximum[j]) - normalizer[j];
    } else {
      for (int64_t j = 0; j < width; ++j) to[j] *= normalizer[j];
    }
  }
}

template <class T> void softmax_backward_row(T* __restrict dx, const T* dy, const T* y, int64_t n, bool log) {
  if (log) {
    const T sum = row_sum<T>(n, [=](int64_t i) { return dy[i]; });
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - m::exp(y[i]) * sum;
    return;
  }
  const T sum = row_sum<T>(n, [=](int64_t i) { return dy[i] * y[i]; });
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - sum);
}

template <class T>
void softmax_backward_columns(T* __restrict dx, const T* dy, const T* y, int64_t n, int64_t inner,
                              int64_t width, bool log) {
  T sum[kTile] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) sum[j] += dy[i * inner + j] * (log ? T(1) : y[i * inner + j]);
  for (int64_t i = 0; i < n; ++i) {
    const T *g = dy + i * inner, *v = y + i * inner;
    T* to = dx + i * inner;
    if (log) {
      for (int64_t j = 0; j < width; ++j) to[j] = g[j] - m::exp(v[j]) * sum[j];
    } else {
      for (int64_t j = 0; j < width; ++j) to[j] = v[j] * (g[j] - sum[j]);
    }
  }
}

// In parallel, calls rows(offset, number of rows) if inner is 1, else columns(offset, width) for tiles of
// adjacent columns. Offsets count elements.
template <class Rows, class Columns>
void for_each_softmax(int64_t numel, int64_t n, int64_t inner, Rows&& rows, Columns&& columns) {
  if (numel == 0) return;
  const int64_t outer = numel / (n * inner);
  if (inner == 1) {
    parallel_for(0, outer, std::max<int64_t>(1, kGrain / n),
                 [&](int64_t begin, int64_t end) { rows(begin * n, end - begin); });
    return;
  }
  const int64_t width = std::min(inner, kTile), tiles = (inner + width - 1) / width;
  parallel_for(0, outer * tiles, std::max<int64_t>(1, kGrain / (n * width)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i % tiles * width;
      columns(i / tiles * n * inner + at, std::min(width, inner - at));
    }
  });
}

void softmax_cpu(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log) {
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    T* to = y.ptr<T>();
    const T* from = x.ptr<T>();
    for_each_softmax(
        x.numel(), n, inner,
        [&](int64_t at, int64_t rows) {
          if (n <= kMaxShortRow) return softmax_short_rows(to + at, from + at, rows, n, log);
          for (int64_t r = 0; r < rows; ++r, at += n) softmax_row(to + at, from + at, n, log);
        },
        [&](int64_t at, int64_t width) { softmax_columns(to + at, from + at, n, inner, width, log); });
  });
}

void softmax_backward_cpu(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t n, int64_t inner,
                          bool log) {
  dispatch_floating(y.dtype(), "softmax_backward", [&]<class T>() {
    T* to = dx.ptr<T>();
    const T *g = dy.ptr<T>(), *v = y.ptr<T>();
    for_each_softmax(
        y.numel(), n, inner,
        [&](int64_t at, int64_t rows) {
          for (int64_t r = 0; r < rows; ++r, at += n) softmax_backward_row(to + at, g + at, v + at, n, log);
        },
        [&](int64_t at, int64_t width) {
          softmax_backward_columns(to + at, g + at, v + at, n, inner, width, log);
        });
  });
}

}  // namespace

constinit decltype(softmax_kernel) softmax_kernel{"softmax", &softmax_cpu};
constinit decltype(softmax_backward_kernel) softmax_backward_kernel{"softmax_backward",
                                                                    &softmax_backward_cpu};

}  // namespace gradus::raw
