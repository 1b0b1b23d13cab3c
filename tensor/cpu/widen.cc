#include "gradus/tensor/cpu/widen.h"

#include <numeric>

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::cpu {
namespace {

constexpr int64_t kGrain = 32768;

// Returns dense strides. The dims keep x's order in memory; a stride is 0 where x's is 0.
Strides dense_strides(const Tensor& x) {
  std::array<int, kMaxDims> order;
  std::iota(order.begin(), order.begin() + x.dim(), 0);
  std::stable_sort(order.begin(), order.begin() + x.dim(),
                   [&](int a, int b) { return x.strides()[a] > x.strides()[b]; });
  Strides strides = Dims::filled(x.dim(), 0);
  int64_t step = 1;
  for (int i = x.dim() - 1; i >= 0; --i) {
    const int d = order[i];
    if (x.strides()[d] == 0 && x.shape()[d] > 1) continue;
    strides[d] = step;
    step *= x.shape()[d];
  }
  return strides;
}

// Returns the number of elements from the first to the last that the strides reach.
int64_t extent(const Tensor& x, const Strides& strides) {
  int64_t last = 0;
  for (int d = 0; d < x.dim(); ++d) last += (x.shape()[d] - 1) * strides[d];
  return last + 1;
}

// Converts a part of x, which spans the dims from `d` on and starts at x[from], to to[at].
void widen_part(const Tensor& x, const Strides& to_strides, ConvertFunction convert, int inner, int d,
                float* to, int64_t from, int64_t at) {
  if (d == inner) ++d;
  if (d >= x.dim()) {
    const char* source = static_cast<const char*>(x.raw_ptr()) + from * size_of(x.dtype());
    return convert(x.shape()[inner], to + at, to_strides[inner], source, x.strides()[inner]);
  }
  const int64_t n = to_strides[d] == 0 ? 1 : x.shape()[d];
  for (int64_t i = 0; i < n; ++i)
    widen_part(x, to_strides, convert, inner, d + 1, to, from + i * x.strides()[d], at + i * to_strides[d]);
}

}  // namespace

Tensor widened(const Tensor& x) {
  if (!x.defined()) return x;
  const ConvertFunction convert = converter(DType::kF32, x.dtype());
  const Strides strides = dense_strides(x);
  const Tensor flat = empty({extent(x, strides)}, {DType::kF32});
  const Tensor y = view_as_strided(flat, x.shape(), strides, 0);
  float* to = flat.ptr<float>();
  if (x.is_dense()) {
    const char* from = static_cast<const char*>(x.raw_ptr());
    parallel_for(0, x.numel(), kGrain, [&](int64_t first, int64_t last) {
      convert(last - first, to + first, 1, from + first * size_of(x.dtype()), 1);
    });
  } else {
    int inner = 0;  // the dim with the shortest step
    for (int d = 0; d < x.dim(); ++d)
      if (strides[d] == 1 && x.shape()[d] > 1) inner = d;
    if (inner == 0 || strides[0] == 0) {
      widen_part(x, strides, convert, inner, 0, to, 0, 0);
    } else {
      parallel_for(0, x.shape()[0], 1 + kGrain / (x.numel() / x.shape()[0]),
                   [&](int64_t first, int64_t last) {
                     for (int64_t i = first; i < last; ++i)
                       widen_part(x, strides, convert, inner, 1, to, i * x.strides()[0], i * strides[0]);
                   });
    }
  }
  return y;
}

Tensor wide_like(const Tensor& y) {
  return y.defined() ? empty_strided(y.shape(), y.strides(), {DType::kF32, kCPU}) : y;
}

void round_to(const Tensor& y, const Tensor& wide) {
  if (!y.defined()) return;
  const ConvertFunction convert = converter(y.dtype(), DType::kF32);
  char* to = static_cast<char*>(y.raw_ptr());
  parallel_for(0, y.numel(), kGrain, [&](int64_t first, int64_t last) {
    convert(last - first, to + first * size_of(y.dtype()), 1, wide.ptr<float>() + first, 1);
  });
}

}  // namespace gradus::cpu
