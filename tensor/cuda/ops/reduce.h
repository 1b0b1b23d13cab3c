// Host functions that reduce tensors by the kernels of kernels/reduce.h, with a workspace, on a stream.
#pragma once

#include <type_traits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// Queues out[o, i] = op over k of layout.x[o, k, i]. op is from reduce_ops.h; `name` is the op in errors.
// `out` is row-major, has elements of type Op::Out, at least one, and x those of type Op::In.
template <class Op>
void run_reduction(const char* name, const Tensor& out, const ReductionLayout& layout, const Op& op,
                   cudaStream_t stream) {
  const auto* const from = static_cast<const typename Op::In*>(layout.x.raw_ptr());
  const Tensor workspace =
      workspace_for(out, reduce_workspace<Op>(from, layout.outer, layout.n, layout.inner));
  reduce(name, op, static_cast<typename Op::Out*>(out.raw_ptr()), from, layout.outer, layout.n, layout.inner,
         workspace.raw_ptr(), stream);
}
// Reduces the dims in which `out`, row-major with as many dims as x, has size 1. x may have any strides.
template <class Op> void run_reduction(const char* name, const Tensor& out, const Tensor& x, const Op& op) {
  if (out.numel() == 0) return;
  const ReductionLayout layout = reduction_layout_of(out, x);
  run_reduction(name, out, layout, op, stream_for({&out, &layout.x}));
}

// Calls f(T()) with the element type of the dtype; uint8_t for bool.
template <class F> void with_elements(DType dtype, F&& f) {
  with_type(dtype, [&](auto type) {
    if constexpr (std::is_same_v<decltype(type), bool>)
      f(uint8_t());
    else
      f(type);
  });
}

}  // namespace gradus::cuda
