// Sets the CUDA kernel of raw::resample_kernel (tensor/ops/images/resample.h), for interpolation, reflection,
// replication and circular padding, and their gradients: copies the matrices of the axes to the device, and queues the
// launch of kernels/images/resample.h on the current stream. Tensors are f32 or f64, channels-last and not empty.
#include "gradus/tensor/ops/images/resample.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "gradus/tensor/cuda/kernels/images/resample.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::cuda {
namespace {

// Returns all matrices in one i64 array on x's device: for each axis that has one, its start, from, and the bits of
// its weights.
Tensor matrices_on_device(const Tensor& x, const Resampling& map) {
  int64_t count = 0;
  for (const auto& axis : map.axes)
    if (axis) count += int64_t(axis->start.size() + 2 * axis->from.size());
  const Tensor packed = empty({count}, {.dtype = DType::kI64});
  int64_t* to = packed.ptr<int64_t>();
  for (const auto& axis : map.axes) {
    if (!axis) continue;
    to = std::copy(axis->start.begin(), axis->start.end(), to);
    to = std::copy(axis->from.begin(), axis->from.end(), to);
    for (const double w : axis->weight) *to++ = std::bit_cast<int64_t>(w);
  }
  return raw::to(packed, x.device());
}

void resample_cuda(const Tensor& y, const Tensor& x, Resampling map) {
  const Tensor matrices = matrices_on_device(x, map);
  const int64_t* next = matrices.ptr<int64_t>();
  const auto axis = [&](int a) {  // 0: D, 1: H, 2: W; x may lack the first ones
    const int d = x.dim() - 3 + a;
    ResampledAxis r{d < 2 ? 1 : x.size(d), d < 2 ? 1 : y.size(d), nullptr, nullptr, nullptr};
    if (const AxisTaps* const taps = map.axes[size_t(a)].get()) {
      r.start = next, r.from = r.start + taps->start.size();
      r.weight = reinterpret_cast<const double*>(r.from + taps->from.size());
      next += taps->start.size() + 2 * taps->from.size();
    }
    return r;
  };
  const ResampledAxis along_d = axis(0), along_h = axis(1), along_w = axis(2);
  const cudaStream_t stream = stream_for({&y, &x, &matrices});
  dispatch_floating(x.dtype(), "resample", [&]<class T>() {
    resample("resample", y.ptr<T>(), x.ptr<T>(), {x.size(0), x.size(1), along_d, along_h, along_w}, stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::resample_kernel.cuda = &resample_cuda, true);

}  // namespace
}  // namespace gradus::cuda
