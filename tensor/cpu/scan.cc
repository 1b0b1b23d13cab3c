// Along one dim of a row-major tensor on the CPU: extrema with their indices, running sums.
#include "gradus/tensor/cpu/reduce_loops.h"
#include "gradus/tensor/cpu/reduce_types.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::raw {
namespace {

using namespace cpu;

template <class T, bool largest>
void extremum_row(T* value, int64_t* index, const T* x, int64_t n) {
  using V = OrderOf<T>;
  const V best = reduce_row(Extreme<T, largest>{}, x, n, 1);
  const auto hit = [best](T v) {
    return (static_cast<V>(v) == best) | (is_nan(best) & is_nan(static_cast<V>(v)));
  };
  // Whole blocks first, without a branch per element.
  int64_t at = 0;
  for (int hits = 0; at + kLanes <= n; at += kLanes) {
    for (int j = 0; j < kLanes; ++j) hits |= hit(x[at + j]);
    if (hits) break;
  }
  while (!hit(x[at])) ++at;
  *value = static_cast<T>(best);
  *index = at;
}

// `width` neighbouring columns of an [n, inner] block.
template <class T, bool largest>
void extremum_columns(T* values, int64_t* indices, const T* x, int64_t n, int64_t inner, int64_t width) {
  using V = OrderOf<T>;
  V best[kTile];
  for (int64_t j = 0; j < width; ++j) best[j] = static_cast<V>(x[j]), indices[j] = 0;
  for (int64_t i = 1; i < n; ++i) {
    const T* row = x + i * inner;
    for (int64_t j = 0; j < width; ++j) {
      const V v = static_cast<V>(row[j]);
      const bool better = (largest ? v > best[j] : v < best[j]) | (is_nan(v) & !is_nan(best[j]));
      best[j] = better ? v : best[j];
      indices[j] = better ? i : indices[j];
    }
  }
  for (int64_t j = 0; j < width; ++j) values[j] = static_cast<T>(best[j]);
}

template <class T, bool largest>
void extremum(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner) {
  const int64_t outputs = values.numel(), n = x.numel() / outputs;
  const T* p = x.ptr<T>();
  T* v = values.ptr<T>();
  int64_t* at = indices.ptr<int64_t>();
  if (inner == 1) {
    parallel_for(0, outputs, std::max<int64_t>(1, kTask / n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) extremum_row<T, largest>(v + i, at + i, p + i * n, n);
    });
    return;
  }
  const int64_t tile = std::min(inner, kTile), tiles = (inner + tile - 1) / tile;
  const int64_t grain = std::max<int64_t>(1, kTask / (n * tile));
  parallel_for(0, outputs / inner * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / tiles, first = i % tiles * tile, out = outer * inner + first;
      extremum_columns<T, largest>(v + out, at + out, p + outer * n * inner + first, n, inner,
                                   std::min(tile, inner - first));
    }
  });
}

void extremum_cpu(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner, bool largest) {
  if (values.numel() == 0) return;
  dispatch_bytes(x, [&]<class T>() {
    largest ? extremum<T, true>(values, indices, x, inner) : extremum<T, false>(values, indices, x, inner);
  });
}

void cumsum_cpu(const Tensor& out, const Tensor& x, int64_t inner, bool reverse) {
  const int64_t outer = out.shape()[0], n = out.shape()[1];
  if (x.numel() == 0) return;
  dispatch_bytes(x, [&]<class T>() {
    using R = SumResult<T>;
    const T* p = x.ptr<T>();
    R* y = out.ptr<R>();
    parallel_for(0, outer * inner, std::max<int64_t>(1, kTask / n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t base = i / inner * n * inner + i % inner;
        WideOf<T> total = 0;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t at = base + (reverse ? n - 1 - j : j) * inner;
          total += static_cast<WideOf<T>>(p[at]);
          y[at] = static_cast<R>(total);
        }
      }
    });
  });
}

const RegisterKernel kExtremum(extremum_kernel, DeviceType::kCPU, &extremum_cpu);
const RegisterKernel kCumsum(cumsum_kernel, DeviceType::kCPU, &cumsum_cpu);

}  // namespace
}  // namespace gradus::raw
