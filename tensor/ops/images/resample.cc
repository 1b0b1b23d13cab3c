// Implementation of raw::resample, which multiplies each spatial axis of a tensor by a sparse matrix in CSR format
// (AxisTaps), and the transposition of these matrices for gradients. The product itself is a kernel of the device.
#include "gradus/tensor/ops/images/resample.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Returns the transpose of a CSR matrix, by a counting sort of the entries by column.
AxisTaps transposed_taps(const AxisTaps& a) {
  AxisTaps t;
  t.in = a.out, t.out = a.in;
  // t.start: the numbers of entries per column of `a`, then their prefix sums
  t.start.assign(size_t(a.in) + 1, 0);
  for (int64_t cell : a.from) ++t.start[size_t(cell) + 1];
  for (size_t i = 1; i < t.start.size(); ++i) t.start[i] += t.start[i - 1];
  t.from.resize(a.from.size());
  t.weight.resize(a.from.size());
  std::vector<int64_t> next(t.start.begin(), t.start.end() - 1);  // next free entry per row of t
  for (int64_t i = 0; i < a.out; ++i) {
    for (int64_t k = a.start[size_t(i)]; k < a.start[size_t(i) + 1]; ++k) {
      const size_t at = size_t(next[size_t(a.from[size_t(k)])]++);
      t.from[at] = i;
      t.weight[at] = a.weight[size_t(k)];
    }
  }
  return t;
}

}  // namespace

Resampling Resampling::transposed() const {
  Resampling t;
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a]) t.axes[a] = std::make_shared<AxisTaps>(transposed_taps(*axes[a]));
  return t;
}

namespace raw {

Tensor resample(const Tensor& x, const Resampling& map) {
  if (x.dim() < 3 || x.dim() > 5) throw ShapeError("resample", "x must have 3 to 5 dims: x ", describe(x));
  check_floating("resample", "x", x);
  Shape shape = x.shape();
  for (int a = 0; a < 3; ++a) {
    const AxisTaps* taps = map.axes[size_t(a)].get();
    if (!taps) continue;
    const int d = x.dim() - 3 + a;  // axes D, H, W are the last dims; dims 0 and 1 are N and C
    if (d < 2 || x.size(d) != taps->in)
      throw ShapeError("resample", "an axis of ", taps->in, " pixels is not dim ", d, " of x ", describe(x));
    shape[d] = taps->out;
  }
  // 16-bit floats are computed in f32. A result of an empty input is zeros.
  const DType computed = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Tensor y = empty_channels_last(shape, {computed, x.device()});
  if (y.numel() > 0 && x.numel() > 0) resample_kernel(y, channels_last(to(x, computed)), map);
  if (y.numel() > 0 && x.numel() == 0) fill_(y, 0);
  return to(y, x.dtype());
}

}  // namespace raw
}  // namespace gradus
