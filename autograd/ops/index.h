// Indexing by tensors: indices are i64 or i32, masks bool. x[{...}] in gradus/autograd/indexing.h is the
// short form. Errors of all: DTypeError for another index dtype; IndexError naming index, dim and size for
// one out of range; DeviceError unless all are on one device.
#pragma once

#include <optional>
#include <vector>

#include "gradus/autograd/ops/view.h"  // DiagonalOptions
#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns the slices of x at `index` along `dim`.
// Shapes: x[a,n,b], index[k] -> [a,k,b].
// Grad: index_add of dy into zeros.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
// Returns zeros of `shape` with dy's slices added at `index`: its transpose.
Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index);
// Returns x with the slices of src added at `index`, repeated ones too; or put there (the last of
// repeated ones stays).
// Shapes: x[a,n,b], index[k], src[a,k,b] -> [a,n,b].
// Grad: x dy (without the slices that index_copy overwrote); src index_select of dy.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Returns x with `value` in the slices at `index` along `dim`; negative indices count from the back. A tensor
// value has one element.
// Errors: ShapeError for a value of more elements.
// Grad: x dy (0 where filled); value the sum of the rest.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);

// Return x with src in the place that select, slice or diagonal would give.
// Errors: ShapeError unless src has the shape of that place; those of select, slice and diagonal.
// Grad: x dy (0 where overwritten); src the rest.
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index);
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t start, int64_t stop,
                     int64_t step = 1);
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, DiagonalOptions options = {});

// Returns the elements at `index` of the flattened x; negative indices count from the back.
// Shapes: index[...] -> [...].
// Grad: dy added where it was read.
Tensor take(const Tensor& x, const Tensor& index);
// Returns x with src's elements put at `index` of the flattened x (the last of repeated ones stays),
// or added there.
// Errors: ShapeError unless index and src have the same number of elements.
Tensor put(const Tensor& x, const Tensor& index, const Tensor& src, bool accumulate = false);

// Returns y[i][j][k] = x[i][index[i][j][k]][k], for dim 1 of 3. index may be smaller than x in
// the other dims.
// Errors: ShapeError unless index fits x.
// Grad: scatter_add of dy into zeros.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
// The same with x and index broadcast against each other outside of `dim`.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int64_t dim);
// Returns zeros of `shape` with dy added at the places that gather read: its transpose.
Tensor gather_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index);

// Returns x with y[i][index[i][j][k]][k] = src[i][j][k], or `value`, for dim 1 of 3; or with src added there.
// Errors: ShapeError unless index fits x and src.
// Grad: x dy (0 where scatter overwrote it); src gather of dy.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// How scatter_reduce combines what arrives at one place.
enum class ScatterReduce { kSum, kProd, kMean, kAmax, kAmin };
struct ScatterReduceOptions {
  bool include_self = true;  // what x holds there counts as well
};
// Returns x with src[i][j][k] combined into y[i][index[i][j][k]][k], for dim 1 of 3; places that nothing
// arrives at keep x's value. The mean of integers is rounded down.
// Errors: ShapeError unless index fits x and src; DTypeError for bool.
// Grad: sum dy, mean dy / n, prod dy times the product of the others, amax and amin dy shared evenly
// among those that attain it; x 0 where it does not count. prod has no second order where several
// zeros of src meet.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      ScatterReduce reduce, ScatterReduceOptions options = {});

// Returns x with `value` where `mask` is true; x, mask and value broadcast to each other.
// Grad: x dy, 0 where masked; value the rest.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
// Returns the elements of x where `mask` is true, row-major. Waits for the device.
// Shapes: x and mask broadcast together -> [count].
// Grad: dy put back amid zeros.
Tensor masked_select(const Tensor& x, const Tensor& mask);

// Returns zeros of mask's shape with dy put back where `mask` is true: its transpose.
// Errors: DTypeError for another mask than bool; ValueError when dy has too few elements.
Tensor masked_select_backward(const Tensor& dy, const Tensor& mask);
// Returns x with src's elements, in order, where `mask` is true; x and mask broadcast together,
// src may have more.
// Errors: DTypeError for another mask than bool, or src of another dtype than x; ValueError when
// src has too few.
// Grad: x dy, 0 where masked; src the rest, then zeros.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src);
// Returns a tensor of `shape` that begins with dy's elements where `mask`, of dy's shape, is true, then
// zeros: the transpose of masked_scatter's src.
// Errors: DTypeError for another mask than bool; ShapeError for one of another shape; ValueError when
// `shape` is too small.
Tensor masked_scatter_backward(const Tensor& dy, const Tensor& mask, const Shape& shape);

// Returns the positions of x's elements that are not 0. Waits for the device.
// Shapes: x with d dims -> i64[count,d].
Tensor nonzero(const Tensor& x);
Tensor argwhere(const Tensor& x);

// Indexes x's leading dims by tensors, undefined ones standing for a whole dim: NumPy's advanced
// indexing. Indices broadcast together, negative ones count from the back, a mask stands for the
// positions where it is true. The indexed dims give way to the indices' common shape: in place when they
// are neighbors, in front otherwise.
// Grad: dy added where it was read.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);
// Returns x with v, which broadcasts to the shape that index gives, put there; or added
// there, also repeatedly.
// Grad: x dy (0 where overwritten); v index of dy.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& v,
                 bool accumulate = false);

}  // namespace gradus
