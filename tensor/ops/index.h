// Raw indexing by index tensors and masks: gather, scatter, index_select, index_put, nonzero, masked_select,
// one_hot. Index tensors are i64 or i32; kernels check every index and throw IndexError if it is negative
// (except in flat_index) or too large. src has x's dtype. Masks are bool. Results are new row-major tensors.
// Errors: as check_index; ShapeError for shapes that do not fit; IndexError also for `dim`; DTypeError for a
// src of another dtype.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The indexed dim of a row-major tensor that is seen as [outer, n, inner]: dim 1, of size n. `dim` (the dim
// of the original shape) and `op` are for errors.
struct IndexedDim {
  int64_t outer = 1, n = 1, inner = 1;
  int dim = 0;
  const char* op = "index";
  int64_t skip = -1;  // index_put skips this index; negative: none
};

// How a written element is combined with the existing one. Several writes to one element are applied in order.
enum class WriteMode { kAssign, kAdd, kMultiply, kMax, kMin };

// Kernels take row-major tensors and i64 indices. kAssign supports all dtypes, the others f64, f32 and
// integers, kAdd also bool. "as `d`" is the shape [d.outer, d.n, d.inner].
// clang-format off
// out[o, i, j] = x[o, index[o, i, j], j]. out, index [outer, k, inner]; x as `d`.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d)> gather_kernel;
// out[o, index[o, i, j], j] = or op= src[o, i, j]. out as `d`; index, src [outer, k, inner].
extern KernelSlot<void(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, WriteMode mode)>
    scatter_kernel;
// out[o, i, j] = x[o, index[i], j]. out [outer, k, inner]; x as `d`; index [k].
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& index, IndexedDim d)>
    index_select_kernel;
// out[o, index[i], j] = or op= src[o, i, j]. out as `d`; index [k]; src [outer, k, inner].
extern KernelSlot<void(const Tensor& out, const Tensor& index, const Tensor& src, IndexedDim d, WriteMode mode)>
    index_put_kernel;
// out += stride * index. Negative indices count from the end of the indexed dim.
extern KernelSlot<void(const Tensor& out, const Tensor& index, IndexedDim d, int64_t stride)>
    flat_index_kernel;
// out [count, dims] = the coordinates of the `count` true elements of the bool tensor x.
extern KernelSlot<void(const Tensor& out, const Tensor& x)> nonzero_kernel;
// out [..., c] = 1 if c == index [...], else 0, for out [..., classes].
extern KernelSlot<void(const Tensor& out, const Tensor& index)> one_hot_kernel;
// out [n] = the elements of x where mask is true, then zeros. Throws ValueError if out is too small.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask)> masked_select_kernel;
// out = the next element of src where mask is true, else the element of x (0 if x is undefined). Throws ValueError
// if src has too few elements.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask, const Tensor& src)>
    masked_scatter_kernel;
// clang-format on

// Element-wise indexing along `dim`, as in PyTorch. index has as many dims as x, and may be smaller in the other
// dims.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
// The same with `mode`. Without `include_self` the initial values of the written elements are ignored.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, WriteMode mode,
                      bool include_self);

// Indexing of slices along `dim`. index is [k].
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, const char* op = "index_select");
// Returns zeros of `shape` to which the slices of dy are added at the indices, except where the index is `skip`.
Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index,
                             int64_t skip = -1, const char* op = "index_select_backward");
// Writes the slices of src into x, which is row-major.
void index_copy_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const char* op);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Returns the linear (row-major) indices into an array of shape `sizes` of the elements at coordinates `indices`,
// one tensor per dim. The result has the shape to which `indices` broadcast. `first_dim` and `op` are for errors.
Tensor flat_index(const std::vector<Tensor>& indices, const Dims& sizes, int first_dim,
                  const char* op = "index");

// Returns the coordinates of the elements that are not 0, i64[count,dims]. Blocks until the device has computed
// `count`.
// Errors: DeviceError for a meta tensor.
Tensor nonzero(const Tensor& x);

// Returns the elements of x where the mask is true, in row-major order. The mask has x's shape. Blocks until the
// device has counted them.
// Errors: DeviceError for a meta tensor.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// Returns a tensor of `shape` with these elements, then zeros. Does not block.
Tensor masked_select_into(const Tensor& x, const Tensor& mask, const Shape& shape);
// Returns x (undefined: zeros) with the elements where the mask is true replaced by those of src, in order.
// `shape` is that of x and mask. x and src have one dtype (not checked).
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src, const Shape& shape);

// Returns [..., classes]: 1 at the index, else 0. classes = -1: the largest index plus 1; blocks.
// Errors: ValueError for less than 1 class.
Tensor one_hot(const Tensor& index, int64_t classes, DType dtype = DType::kI64);

// Checks an index tensor.
// Errors: DTypeError unless `index` is i64 or i32; DeviceError unless it is on x's device.
void check_index(const Tensor& index, const Tensor& x, const char* op);

}  // namespace gradus::raw
