// Raw indexing by tensors of indices. Index tensors are i64 or i32; kernels check every index
// against its bounds.
#pragma once

#include <vector>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// A tensor of which one dimension is indexed, seen row-major as [outer, n, inner]; `dim` and `op` are
// for error texts.
struct IndexedDim {
  int64_t outer = 1, n = 1, inner = 1;
  int dim = 0;
  const char* op = "index";
  int64_t skip = -1;  // index_put leaves this index out; negative: none
};

// What becomes of a place that is written to. Repeated places are taken in order.
enum class Write { kPut, kAdd, kMultiply, kMax, kMin };

// Kernels take row-major tensors; indices are i64. All but kPut take f64, f32 and integers,
// kAdd bool as well.
// clang-format off
// out, index [outer, k, inner]; x as `d` says.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d)> gather_kernel;
// out as `d` says; index, src [outer, k, inner].
extern KernelSlot<void(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, Write how)>
    scatter_kernel;
// out [outer, k, inner]; x as `d` says; index [k].
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d)>
    index_select_kernel;
// out as `d` says; index [k]; src [outer, k, inner].
extern KernelSlot<void(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, Write how)>
    index_put_kernel;
// out += stride * index, negative indices counted from the back of the indexed dimension.
extern KernelSlot<void(const Tensor& out, const Tensor& index, IndexedDim d, int64_t stride)>
    flat_index_kernel;
// out [count, dims]: the positions of x's true elements. x has `count` of them.
extern KernelSlot<void(const Tensor& out, const Tensor& x)> nonzero_kernel;
// out [..., classes] = 1 where the last coordinate is index [...], else 0.
extern KernelSlot<void(const Tensor& out, const Tensor& index)> one_hot_kernel;
// out [n] = the elements of x where the mask holds, one after another, then zeros. All are row-major.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask)> masked_select_kernel;
// out = where the mask holds the next element of src, else x (undefined: 0). Throws when src has too few.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask, const Tensor& src)>
    masked_scatter_kernel;
// clang-format on

// Element-wise along `dim`: index has x's number of dims and may be smaller in the others.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
// Without `include_self` what x holds at the places that are written to does not count.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Write how,
                      bool include_self);

// Slice-wise along `dim`: index is [k].
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, const char* op = "index_select");
// Zeros of `shape` with dy's slices added at the indices, but for index `skip`.
Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index,
                             int64_t skip = -1, const char* op = "index_select_backward");
// Puts the slices in place. x is row-major.
void index_copy_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const char* op);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Positions in the row-major order of `sizes` of the elements that `indices`, one tensor per entry of
// `sizes`, name; shaped as the indices broadcast together. `first_dim` and `op` are for error texts.
Tensor flat_index(const std::vector<Tensor>& indices, const Dims& sizes, int first_dim,
                  const char* op = "index");

// i64 [count, dims]. Waits for the device.
// Errors: DeviceError for a meta tensor.
Tensor nonzero(const Tensor& x);

// Elements where the mask, of x's shape, holds, row-major. Waits for the device.
// Errors: DeviceError for a meta tensor.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// A tensor of `shape` that begins with them; zeros follow.
Tensor masked_select_into(const Tensor& x, const Tensor& mask, const Shape& shape);
// x (undefined: zeros) with src's elements, in order, where the mask holds. `shape` is x's and the mask's.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src, const Shape& shape);

Tensor one_hot(const Tensor& index, int64_t classes, DType dtype = DType::kI64);

// Errors: DTypeError unless `index` is i64 or i32; DeviceError unless it is where x is.
void check_index(const Tensor& index, const Tensor& x, const char* op);

}  // namespace gradus::raw
