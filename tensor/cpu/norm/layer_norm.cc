// CPU kernels of layer normalization and RMS normalization (not centered), and of their gradients, one row of
// n elements at a time:
//   y = (x - mean) / sqrt(var + eps) * weight + bias    (RMS: mean = 0, var = mean(x^2))
// x and y [rows,n], weight and bias [n] (undefined: 1 and 0), stats f64 [rows,2] = (mean, 1 / sqrt(var +
// eps)). All are f32 or f64 and row-major; x is not empty; no result aliases an input. Callers compute 16-bit
// floats in f32. Blocks of kBlock elements are summed in T in kLanes lanes, the sums of blocks in f64. The
// order of the additions does not depend on the number of threads.
#include "gradus/tensor/ops/norm/layer_norm.h"
#include "gradus/tensor/kernel.h"

#include <cmath>
#include <vector>

#include "gradus/tensor/ops/formulas/layer_norm.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

template <class T> using Row = formulas::RowNormalizer<T>;

constexpr int64_t kLanes = 32;     // independent partial sums, which compilers vectorize
constexpr int64_t kBlock = 512;    // elements that are summed in T
constexpr int64_t kGrain = 16384;  // minimum number of elements per thread

// Returns the sums of f(i) over i < n, for f that returns K terms as std::array<T, K>.
template <class T, size_t K, class F> std::array<double, K> sum_lanes(int64_t n, F f) {
  std::array<double, K> total{};
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t last = std::min(n, first + kBlock), vector_end = first + (last - first) / kLanes * kLanes;
    T lanes[K][kLanes] = {};
    for (int64_t i = first; i < vector_end; i += kLanes)
      for (int64_t j = 0; j < kLanes; ++j) {
        const std::array<T, K> v = f(i + j);
        for (size_t k = 0; k < K; ++k) lanes[k][j] += v[k];
      }
    for (int64_t i = vector_end; i < last; ++i) {
      const std::array<T, K> v = f(i);
      for (size_t k = 0; k < K; ++k) lanes[k][i - vector_end] += v[k];
    }
    for (size_t k = 0; k < K; ++k)
      for (int64_t j = 0; j < kLanes; ++j) total[k] += double(lanes[k][j]);
  }
  return total;
}

struct Stats {
  double mean = 0, inv_std;
};

// Two passes over a row: the mean from differences to the first element, then the variance from squared
// differences to the mean. Not centered: only the mean of squares.
template <class T> Stats statistics(const T* x, int64_t n, const LayerNormSpec& spec) {
  Stats s;
  double square;
  if (spec.centered) {
    const T first_value = x[0];
    s.mean = double(first_value) +
             sum_lanes<T, 1>(n, [=](int64_t i) { return std::array{x[i] - first_value}; })[0] / double(n);
    const T high = T(s.mean);
    square = sum_lanes<T, 1>(n, [=](int64_t i) { return std::array{(x[i] - high) * (x[i] - high)}; })[0] /
             double(n);
    square -= (double(high) - s.mean) * (double(high) - s.mean);
    if (square < 0) square = 0;  // negative by rounding; NaN stays NaN
  } else {
    square = sum_lanes<T, 1>(n, [=](int64_t i) { return std::array{x[i] * x[i]}; })[0] / double(n);
  }
  s.inv_std = 1 / std::sqrt(square + spec.eps);
  return s;
}

// y = normalized x * w + b. w and b may be null.
template <class T>
void normalize(T* __restrict y, const T* __restrict x, const T* __restrict w, const T* __restrict b,
               int64_t n, Row<T> row) {
  if (w && b)
    for (int64_t i = 0; i < n; ++i) y[i] = row(x[i]) * w[i] + b[i];
  else if (w)
    for (int64_t i = 0; i < n; ++i) y[i] = row(x[i]) * w[i];
  else if (b)
    for (int64_t i = 0; i < n; ++i) y[i] = row(x[i]) + b[i];
  else
    for (int64_t i = 0; i < n; ++i) y[i] = row(x[i]);
}

template <class T> const T* ptr_or_null(const Tensor& t) { return t.defined() ? t.ptr<T>() : nullptr; }

void layer_norm_cpu(const Tensor& y, const Tensor& stats, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const LayerNormSpec& spec) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    const int64_t rows = stats.size(0), n = x.numel() / rows;
    double* st = stats.ptr<double>();
    parallel_for(0, rows, 1 + kGrain / n, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const T* from = x.ptr<T>() + r * n;
        const Stats s = statistics(from, n, spec);
        st[2 * r] = s.mean, st[2 * r + 1] = s.inv_std;
        normalize(y.ptr<T>() + r * n, from, ptr_or_null<T>(weight), ptr_or_null<T>(bias), n,
                  Row<T>(s.mean, s.inv_std));
      }
    });
  });
}

// dx = (dy w - mean(dy w) - z mean(dy w z)) / std, where z is the normalized x; without mean(dy w) if not
// centered. Adds dy z to dw and dy to db.
template <class T>
void backward_row(T* __restrict dx, T* __restrict dw, T* __restrict db, const T* __restrict dy,
                  const T* __restrict x, const T* __restrict w, int64_t n, Row<T> row, bool centered) {
  const auto sums = w ? sum_lanes<T, 2>(n,
                                        [=](int64_t i) {
                                          const T g = dy[i] * w[i];
                                          return std::array{g, g * row(x[i])};
                                        })
                      : sum_lanes<T, 2>(n, [=](int64_t i) {
                          return std::array{dy[i], dy[i] * row(x[i])};
                        });
  const T mean_g = T(centered ? sums[0] / double(n) : 0), mean_gz = T(sums[1] / double(n));
  for (int64_t i = 0; i < n; ++i) {
    const T z = row(x[i]), g = w ? dy[i] * w[i] : dy[i];
    dx[i] = row.gradient(g, z, mean_g, mean_gz);
    dw[i] += dy[i] * z;
    db[i] += dy[i];
  }
}

// Threads divide the rows into at most 64 blocks, whose number depends on the shape alone. Each block has
// partial sums of dweight and dbias in f64, which are added in order of the blocks.
void layer_norm_backward_cpu(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& stats, const Tensor& weight,
                             const LayerNormSpec& spec) {
  dispatch_floating(x.dtype(), "layer_norm_backward", [&]<class T>() {
    const int64_t rows = stats.size(0), n = x.numel() / rows;
    const int64_t blocks = std::min(rows, std::clamp<int64_t>(rows * n / 65536, 1, 64));
    const double* st = stats.ptr<double>();
    std::vector<double> partials(size_t(blocks * 2 * n), 0.0);
    parallel_for(0, blocks, 1, [&](int64_t first_block, int64_t last_block) {
      std::vector<T> partial(size_t(2 * n));  // sums of a few rows in T
      for (int64_t b = first_block; b < last_block; ++b) {
        double* sums = partials.data() + b * 2 * n;
        const int64_t end = rows * (b + 1) / blocks;
        for (int64_t r = rows * b / blocks; r < end;) {
          std::fill(partial.begin(), partial.end(), T(0));
          for (const int64_t stop = std::min(end, r + 16); r < stop; ++r)
            backward_row(dx.ptr<T>() + r * n, partial.data(), partial.data() + n, dy.ptr<T>() + r * n,
                         x.ptr<T>() + r * n, ptr_or_null<T>(weight), n, Row<T>(st[2 * r], st[2 * r + 1]),
                         spec.centered);
          for (int64_t i = 0; i < 2 * n; ++i) sums[i] += double(partial[size_t(i)]);
        }
      }
    });
    parallel_for(0, n, 1 + kGrain / blocks, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        double w = 0, b = 0;
        for (int64_t k = 0; k < blocks; ++k)
          w += partials[size_t(k * 2 * n + i)], b += partials[size_t((k * 2 + 1) * n + i)];
        dweight.ptr<T>()[i] = T(w), dbias.ptr<T>()[i] = T(b);
      }
    });
  });
}

}  // namespace

constinit decltype(layer_norm_kernel) layer_norm_kernel{"layer_norm", cpu::flushing<&layer_norm_cpu>};
constinit decltype(layer_norm_backward_kernel) layer_norm_backward_kernel{
    "layer_norm_backward", cpu::flushing<&layer_norm_backward_cpu>};

}  // namespace gradus::raw
