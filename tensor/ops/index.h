// Raw indexing by tensors of indices. Index tensors are i64 or i32; kernels check every index against its
// bounds.
#pragma once

#include <vector>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// A tensor of which one dimension is indexed, seen row-major as [outer, n, inner]; `dim` is for error texts.
struct IndexedDim {
  int64_t outer = 1, n = 1, inner = 1;
  int dim = 0;
};

// Kernels take row-major tensors; indices are i64. `add` adds where the others overwrite; repeated indices
// are taken in order.
// clang-format off
// out, index [outer, k, inner]; x as `d` says.
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d)> gather_kernel{"gather"};
// out as `d` says; index, src [outer, k, inner].
inline constinit KernelSlot<void(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, bool add)>
    scatter_kernel{"scatter"};
// out [outer, k, inner]; x as `d` says; index [k].
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d)>
    index_select_kernel{"index_select"};
// out as `d` says; index [k]; src [outer, k, inner].
inline constinit KernelSlot<void(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, bool add)>
    index_put_kernel{"index_put"};
// out += stride * index, negative indices counted from the back of a dimension of `size`.
inline constinit KernelSlot<void(const Tensor& out, const Tensor& index, int64_t size, int64_t stride, int dim)>
    flat_index_kernel{"index"};
// out [count, dims]: the positions of x's true elements. x has `count` of them.
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x)> nonzero_kernel{"nonzero"};
// out [..., classes] = 1 where the last coordinate is index [...], else 0.
inline constinit KernelSlot<void(const Tensor& out, const Tensor& index)> one_hot_kernel{"one_hot"};
// clang-format on

// Element-wise along `dim`: index has x's number of dims and may be smaller in the others.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Slice-wise along `dim`: index is [k].
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Positions in the row-major order of `sizes` of the elements that `indices`, one tensor per entry of
// `sizes`, name; shaped as the indices broadcast together. `first_dim` is for error texts.
Tensor flat_index(const std::vector<Tensor>& indices, const Dims& sizes, int first_dim);

// i64 [count, dims]. Waits for the device. Errors: DeviceError for a meta tensor.
Tensor nonzero(const Tensor& x);

Tensor one_hot(const Tensor& index, int64_t classes, DType dtype = DType::kI64);

// Errors: DTypeError unless `index` is i64 or i32; DeviceError unless it is where x is.
void check_index(const Tensor& index, const Tensor& x, std::string_view op);

}  // namespace gradus::raw
