// Raw indexing by tensors of indices. Index tensors are i64 or i32; kernels check every index
// against its bounds.
#pragma once

#include <vector>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The indexed dim of a tensor, which is seen row-major as [outer, n, inner]. `dim` and `op` are
// for error texts.
struct IndexedDim {
  int64_t outer = 1, n = 1, inner = 1;
  int dim = 0;
  const char* op = "index";
  int64_t skip = -1;  // index_put skips this index; negative: none
};

// How a written element and the element at its place are combined. Several elements for one place are
// taken in order.
enum class Write { kPut, kAdd, kMultiply, kMax, kMin };

// Kernels take row-major tensors. Indices are i64. kPut takes all dtypes, the others f64, f32 and integers,
// kAdd also bool.
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
// out += stride * index. Negative indices count from the back of the indexed dim.
extern KernelSlot<void(const Tensor& out, const Tensor& index, IndexedDim d, int64_t stride)>
    flat_index_kernel;
// out [count, dims] = the positions of the true elements of x. x has `count` of them.
extern KernelSlot<void(const Tensor& out, const Tensor& x)> nonzero_kernel;
// out [..., classes] = 1 where the last coordinate is index [...], else 0.
extern KernelSlot<void(const Tensor& out, const Tensor& index)> one_hot_kernel;
// out [n] = the elements of x where the mask holds, one after another, then zeros. All tensors are row-major.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask)> masked_select_kernel;
// out = the next element of src where the mask holds, else the element of x (x undefined: 0). Throws when src
// has too few elements.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask, const Tensor& src)>
    masked_scatter_kernel;
// clang-format on

// Work element by element along `dim`. index has as many dims as x, and may be smaller in the others.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
// Without `include_self` the elements of x that are written to do not count.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Write how,
                      bool include_self);

// Work slice by slice along `dim`. index is [k].
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, const char* op = "index_select");
// Returns zeros of `shape` with the slices of dy added at the indices. Slices for index `skip` are left out.
Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index,
                             int64_t skip = -1, const char* op = "index_select_backward");
// Writes the slices of src into x, which is row-major.
void index_copy_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const char* op);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Returns the positions, in the row-major order of `sizes`, of the elements that `indices` name. `indices`
// has one tensor for each entry of `sizes`; the result has the shape to which they broadcast. `first_dim` and
// `op` are for error texts.
Tensor flat_index(const std::vector<Tensor>& indices, const Dims& sizes, int first_dim,
                  const char* op = "index");

// Returns the positions of the elements that are not 0, i64[count,dims]. Waits for the device.
// Errors: DeviceError for a meta tensor.
Tensor nonzero(const Tensor& x);

// Returns the elements of x where the mask holds, in row-major order. The mask has x's shape. Waits
// for the device.
// Errors: DeviceError for a meta tensor.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// Returns a tensor of `shape` that begins with these elements. Zeros follow.
Tensor masked_select_into(const Tensor& x, const Tensor& mask, const Shape& shape);
// Returns x (undefined: zeros) with the elements of src, in order, where the mask holds. `shape` is
// that of x and mask.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src, const Shape& shape);

Tensor one_hot(const Tensor& index, int64_t classes, DType dtype = DType::kI64);

// Checks an index tensor.
// Errors: DTypeError unless `index` is i64 or i32; DeviceError unless it is on x's device.
void check_index(const Tensor& index, const Tensor& x, const char* op);

}  // namespace gradus::raw
