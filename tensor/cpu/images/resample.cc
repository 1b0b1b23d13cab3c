// CPU kernel of separable resampling (interpolation) of channels-last images and volumes. For each output row, the
// weighted input rows are summed into one row, which stays in the cache and is then resampled along W. Threads
// divide the output rows. Callers guarantee f32 or f64 tensors that are channels-last and not empty. An axis
// has AxisTaps, a sparse matrix in CSR format: output i reads the taps start[i] to start[i + 1] - 1; null:
// the identity.
#include "gradus/tensor/ops/images/resample.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

// A term of a weighted sum of arrays: weight * from[i].
template <class T> struct Tap {
  const T* from;
  T weight;
};

// to[i] = sum over taps of weight * from[i], for i < n.
template <class T> void weighted_sum(T* __restrict to, int64_t n, const std::vector<Tap<T>>& taps) {
  const size_t count = taps.size();
  if (count == 0) {
    std::fill_n(to, n, T(0));
  } else if (count == 1 && taps[0].weight == T(1)) {
    std::copy_n(taps[0].from, n, to);
  } else if (count == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = taps[0].weight * taps[0].from[i];
  } else {
    const T *a = taps[0].from, *b = taps[1].from;
    const T wa = taps[0].weight, wb = taps[1].weight;
    size_t k = 2;
    if (count == 3) {
      const T* c = taps[2].from;
      const T wc = taps[2].weight;
      for (int64_t i = 0; i < n; ++i) to[i] = wa * a[i] + wb * b[i] + wc * c[i];
      return;
    }
    if (count >= 4) {
      const T *c = taps[2].from, *d = taps[3].from;
      const T wc = taps[2].weight, wd = taps[3].weight;
      for (int64_t i = 0; i < n; ++i) to[i] = wa * a[i] + wb * b[i] + (wc * c[i] + wd * d[i]);
      k = 4;
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = wa * a[i] + wb * b[i];
    }
    for (; k < count; ++k) {
      const T* e = taps[k].from;
      const T we = taps[k].weight;
      for (int64_t i = 0; i < n; ++i) to[i] += we * e[i];
    }
  }
}

// Resamples one row along W: to[q, c] = sum over the taps k of q of weight[k] * row[from[k], c].
template <class T>
void resample_row(T* to, const T* row, int64_t C, const AxisTaps& taps, std::vector<Tap<T>>& pixel_taps) {
  for (int64_t q = 0; q < taps.out; ++q, to += C) {
    const int64_t first = taps.start[size_t(q)], last = taps.start[size_t(q) + 1];
    if (C < 8) {  // weighted_sum has too much overhead for few channels
      for (int64_t c = 0; c < C; ++c) {
        T sum = 0;
        for (int64_t k = first; k < last; ++k)
          sum += T(taps.weight[size_t(k)]) * row[taps.from[size_t(k)] * C + c];
        to[c] = sum;
      }
      continue;
    }
    pixel_taps.clear();
    for (int64_t k = first; k < last; ++k)
      pixel_taps.push_back({row + taps.from[size_t(k)] * C, T(taps.weight[size_t(k)])});
    weighted_sum(to, C, pixel_taps);
  }
}

// The input positions and weights of output position i along an axis. Null taps are the identity.
struct InputTaps {
  const AxisTaps* taps;
  int64_t i;
  int64_t size() const { return taps ? taps->start[size_t(i) + 1] - taps->start[size_t(i)] : 1; }
  int64_t from(int64_t k) const { return taps ? taps->from[size_t(taps->start[size_t(i)] + k)] : i; }
  double weight(int64_t k) const { return taps ? taps->weight[size_t(taps->start[size_t(i)] + k)] : 1; }
};

// x [N, C, (D, (H,)) W], y likewise with other spatial sizes; missing axes have size 1.
template <class T> void resample(const Tensor& y, const Tensor& x, const Resampling& map) {
  const auto size = [](const Tensor& t, int from_back) {
    return t.dim() - from_back >= 2 ? t.size(-from_back) : 1;
  };
  const int64_t C = x.size(1), D = size(x, 3), H = size(x, 2), row = x.size(-1) * C;
  const int64_t P = size(y, 3), Q = size(y, 2), out_row = y.size(-1) * C;
  const AxisTaps *along_d = map.axes[0].get(), *along_h = map.axes[1].get(), *along_w = map.axes[2].get();
  parallel_for(0, y.size(0) * P * Q, 1 + 16384 / (1 + row + out_row), [&](int64_t first, int64_t last) {
    std::vector<Tap<T>> rows, pixel_taps;
    std::vector<T> sum(along_w ? size_t(row) : 0);
    for (int64_t r = first; r < last; ++r) {
      const InputTaps d{along_d, r / Q % P}, h{along_h, r % Q};
      rows.clear();
      for (int64_t i = 0; i < d.size(); ++i)
        for (int64_t j = 0; j < h.size(); ++j)
          rows.push_back({x.ptr<T>() + ((r / (Q * P) * D + d.from(i)) * H + h.from(j)) * row,
                          T(d.weight(i) * h.weight(j))});
      T* to = y.ptr<T>() + r * out_row;
      if (!along_w) {
        weighted_sum(to, row, rows);
      } else if (rows.size() == 1 && rows[0].weight == T(1)) {
        resample_row(to, rows[0].from, C, *along_w, pixel_taps);
      } else {
        weighted_sum(sum.data(), row, rows);
        resample_row(to, sum.data(), C, *along_w, pixel_taps);
      }
    }
  });
}

void resample_cpu(const Tensor& y, const Tensor& x, Resampling map) {
  dispatch_floating(x.dtype(), "resample", [&]<class T>() { resample<T>(y, x, map); });
}

}  // namespace
}  // namespace gradus

namespace gradus::raw {

constinit decltype(resample_kernel) resample_kernel{"resample", &resample_cpu};

}  // namespace gradus::raw
