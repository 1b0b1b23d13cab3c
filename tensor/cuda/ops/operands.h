// A kernel's tensors as kernels take them (kernels/strided_index.h), and the stream on which they run.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// Returns the current stream of the first tensor's device, for work on these tensors. The device becomes the
// calling thread's. Every kernel asks: so the allocator knows which blocks are used beyond their own stream.
// Undefined tensors are passed over, but for the first.
cudaStream_t stream_for(std::span<const Tensor* const> tensors);
inline cudaStream_t stream_for(std::initializer_list<const Tensor*> tensors) {
  return stream_for(std::span(tensors.begin(), tensors.size()));
}

inline View view_of(const Tensor& x) { return {x.raw_ptr(), x.dtype()}; }

// Returns uninitialized bytes on x's device. They may be freed when the kernels that use them are queued.
inline Tensor workspace_for(const Tensor& x, int64_t bytes) {
  return empty({bytes}, {DType::kU8, x.device()});
}

struct Operands {
  StridedIndex index;
  std::array<View, kMaxOperands> views;
  cudaStream_t stream;
};
// Takes the output first. The others broadcast to its shape.
Operands operands_of(std::initializer_list<const Tensor*> tensors);

// The operand of a reduction over n: dense elements [outer, n, inner] of `x`, which may be a copy.
struct ReductionLayout {
  Tensor x;
  int64_t outer = 1, n = 1, inner = 1;
};
// Returns x for a reduction over the dims in which `out`, row-major and with as many dims, has size 1. Copies an x
// whose layout the reduction cannot read.
ReductionLayout reduction_layout_of(const Tensor& out, const Tensor& x);

}  // namespace gradus::cuda
