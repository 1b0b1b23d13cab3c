// Host functions that turn the Tensors of an op into the arguments of a CUDA kernel: data pointers with dtypes,
// the strided iteration space (tensor/base/strided_index.h), scratch memory, and the stream of the launch. Callers
// have checked shapes, dtypes and devices: all tensors of a call are on one CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// Returns the calling thread's current stream of the first tensor's device, and makes this device the thread's
// current one (cudaSetDevice). Records for the caching allocator that the stream uses the tensors' memory, as
// torch.Tensor.record_stream: a block that another stream allocated is not reused before this stream's work is
// done. So every launch must get its stream here, and pass all of its tensors. The first tensor must be defined;
// undefined ones behind it are skipped.
cudaStream_t stream_for(std::span<const Tensor* const> tensors);
inline cudaStream_t stream_for(std::initializer_list<const Tensor*> tensors) {
  return stream_for(std::span(tensors.begin(), tensors.size()));
}

// Returns t's first element, null if t is undefined.
template <class T> T* or_null(const Tensor& t) { return t.defined() ? t.ptr<T>() : nullptr; }
// Calls f<T>() with the C++ type of a floating dtype, also of 16 bits.
template <class F> void dispatch_all_floating(DType t, F&& f) {
  dispatch_all(t, [&]<class T>() {
    if constexpr (is_floating(dtype_v<T>)) f.template operator()<T>();
  });
}
// Returns x's first element and dtype. The View does not own the memory.
inline View view_of(const Tensor& x) { return {x.raw_ptr(), x.dtype()}; }

// Returns scratch memory on x's device, uninitialized. The Tensor may be destroyed once the kernels that use it
// are queued on the current stream, since the allocator reuses memory in the order of the stream.
inline Tensor workspace_for(const Tensor& x, int64_t bytes) {
  return empty({bytes}, {DType::kU8, x.device()});
}

// The arguments of an element-wise kernel. Does not own the tensors' memory.
struct ElementwiseArgs {
  StridedIndex index;  // nested loops over the output's elements, with the strides of every operand
  std::array<View, kMaxOperands> views;  // in the order of the tensors
  cudaStream_t stream;
};
// Returns the arguments for `tensors`: the output, then the inputs, at most kMaxOperands in all, each defined.
// Inputs broadcast to the output's shape: their broadcast dims have stride 0. Copies and converts nothing.
ElementwiseArgs operands_of(std::initializer_list<const Tensor*> tensors);

// The operand of a reduction over n: x is dense [outer, n, inner] in memory, maybe a permuted copy.
struct ReductionLayout {
  Tensor x;
  int64_t outer = 1, n = 1, inner = 1;
};
// Returns x for a reduction to `out`: out[o, i] = reduction over k of x[o, k, i]. `out` is row-major and has as
// many dims as x; the reduced dims are those in which the sizes differ, where `out` has size 1. An x is copied,
// with the reduced dims last, if x is not dense, its reduced dims are not adjacent in memory, or its kept dims are
// in another order than in `out`.
ReductionLayout reduction_layout_of(const Tensor& out, const Tensor& x);

}  // namespace gradus::cuda
