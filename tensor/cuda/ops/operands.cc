// Prepares tensors for CUDA kernels: the stream, pointers, a StridedIndex with broadcasting for elementwise
// kernels, and a layout [outer, n, inner] for reductions over n.
#include "gradus/tensor/cuda/ops/operands.h"

#include <algorithm>

#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/device_allocator.h"

namespace gradus::cuda {

cudaStream_t stream_for(std::span<const Tensor* const> tensors) {
  const Device device = tensors.front()->device();
  check("cuda", "cudaSetDevice", cudaSetDevice(device.index));
  const std::shared_ptr<internal::NativeStream> stream = internal::current_native_stream(device);
  // As Tensor.record_stream of PyTorch: freed memory is not reused before this stream's work.
  if (internal::DeviceAllocator* const allocator = internal::DeviceAllocator::find(device))
    for (const Tensor* x : tensors)
      if (x->defined()) allocator->record_stream(x->storage()->data(), stream);
  return static_cast<cudaStream_t>(stream->handle());
}

ElementwiseArgs operands_of(std::initializer_list<const Tensor*> tensors) {
  const Tensor& out = **tensors.begin();
  ElementwiseArgs o{};
  size_t count = 0;
  for (const Tensor* x : tensors) o.views[count++] = view_of(*x);
  const std::span<const int64_t> sizes(out.shape().begin(), static_cast<size_t>(out.dim()));
  o.index = gradus::make_strided_index(sizes, static_cast<int>(count), [&](int k, int d) -> int64_t {
    const Tensor& x = *tensors.begin()[k];
    const int own = d - (out.dim() - x.dim());  // dim of x, aligned with the output's dims from the last
    return own < 0 || (k > 0 && x.shape()[own] == 1) ? 0 : x.strides()[own];
  });
  o.stream = stream_for(tensors);
  return o;
}

ReductionLayout reduction_layout_of(const Tensor& out, const Tensor& x) {
  const auto is_reduced = [&](int d) { return out.shape()[d] != x.shape()[d]; };
  // The dims of x by decreasing stride. Dims of size 1 are left out: their stride has no effect.
  Dims order;
  for (int d = 0; d < x.dim(); ++d) {
    if (x.shape()[d] == 1) continue;
    int at = order.size();
    while (at > 0 && x.strides()[static_cast<int>(order[at - 1])] < x.strides()[d]) --at;
    order.insert(at, d);
  }
  // x is read in place if it has no gaps, all reduced dims are adjacent in memory, and the other dims have in
  // memory the order that they have in the row-major output.
  ReductionLayout layout{x};
  bool fits = x.is_dense();
  int64_t last_kept = -1;
  for (const int64_t dim : order) {
    const int d = static_cast<int>(dim);
    const int64_t size = x.shape()[d];
    if (is_reduced(d)) {
      fits = fits && layout.inner == 1;
      layout.n *= size;
    } else {
      fits = fits && d > last_kept;
      last_kept = d;
      (layout.n == 1 ? layout.outer : layout.inner) *= size;
    }
  }
  if (fits || x.numel() == 0) return layout;

  // Otherwise copies x to row-major memory with the reduced dims as the last ones: [outer, n, 1].
  Shape shape;
  gradus::Strides strides;
  layout = {};
  for (const bool reduced : {false, true}) {
    for (int d = 0; d < x.dim(); ++d) {
      if (is_reduced(d) != reduced) continue;
      shape.push_back(x.shape()[d]);
      strides.push_back(x.strides()[d]);
      (reduced ? layout.n : layout.outer) *= x.shape()[d];
    }
  }
  layout.x = raw::contiguous(view_as_strided(x, shape, strides, x.impl().offset));
  return layout;
}

}  // namespace gradus::cuda
