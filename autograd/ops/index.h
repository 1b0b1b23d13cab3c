// Indexing by tensors: indices are i64 or i32, masks bool. gradus/autograd/indexing.h has operator x[{...}].
// Indices lie in [0, n) unless negative ones are mentioned; a negative `dim` counts from the end.
// Errors of all ops: StateError for an undefined tensor; DTypeError for another index dtype, or if src has
// not x's dtype; IndexError naming index, dim and size for an index or dim out of range; DeviceError unless
// all tensors are on one device.
#pragma once

#include <optional>
#include <vector>

#include "gradus/autograd/ops/view.h"  // DiagonalOptions
#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns the slices x[:, index[k], :] along `dim`.
// Shapes: x[a,n,b], index[k] -> [a,k,b].
// Grad: index_add of dy into zeros.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
// Returns zeros of `shape` to which dy's slices are added at `index`: the transpose of index_select.
Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index);
// Return a copy of x in which the slices of src are added to the slices at `index` (index_add) or replace
// them (index_copy). For repeated indices index_add adds every slice, and index_copy keeps the last.
// Shapes: x[a,n,b], index[k], src[a,k,b] -> [a,n,b].
// Grad: to x, dy (without the slices that index_copy overwrote); to src, index_select of dy.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Returns a copy of x with the slices at `index` along `dim` filled with `value`. Negative indices count from
// the end. A tensor `value` has one element.
// Errors: ShapeError for a value of more elements.
// Grad: to x, dy (0 where filled); to value, the sum of dy where filled.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);

// Return a copy of x in which src replaces the elements that select, slice or diagonal would return.
// Errors: ShapeError unless src has the shape of these elements; those of select, slice and diagonal.
// Grad: to x, dy (0 where overwritten); to src, dy at these elements.
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index);
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t start, int64_t stop,
                     int64_t step = 1);
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, DiagonalOptions options = {});

// Returns the elements at `index` of the flattened x. Negative indices count from the end.
// Shapes: index[...] -> [...].
// Grad: dy added at `index`.
Tensor take(const Tensor& x, const Tensor& index);
// Returns a copy of x in which src's elements replace the elements that take would return, or are added to
// them with `accumulate`. Without `accumulate` the last of repeated indices is kept.
// Errors: ShapeError unless index and src have the same number of elements.
Tensor put(const Tensor& x, const Tensor& index, const Tensor& src, bool accumulate = false);

// y[i][j][k] = x[i][index[i][j][k]][k], for dim 1 of 3. index may be smaller than x in the other dims.
// Errors: ShapeError unless index fits x.
// Grad: scatter_add of dy into zeros.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
// The same with x and index broadcast against each other outside of `dim`.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int64_t dim);
// Returns zeros of `shape` to which dy is added at the elements that gather reads: the transpose of gather.
Tensor gather_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index);

// Return a copy y of x with y[i][index[i][j][k]][k] = src[i][j][k] or = `value` (scatter), or += src[i][j][k]
// (scatter_add), for dim 1 of 3.
// Errors: ShapeError unless index fits x and src.
// Grad: to x, dy (0 where scatter overwrote it); to src, gather of dy.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// How scatter_reduce combines the elements with the same destination.
enum class ScatterReduce { kSum, kProd, kMean, kAmax, kAmin };
struct ScatterReduceOptions {
  bool include_self = true;  // also combines x's element at the destination
};
// Returns a copy y of x with src[i][j][k] combined into y[i][index[i][j][k]][k], for dim 1 of 3. Elements
// that are no destination keep x's value. The mean of integers is rounded down.
// Errors: ShapeError unless index fits x and src; DTypeError for bool.
// Grad: to src: kSum dy; kMean dy / n; kProd dy times the product of the other factors; kAmax and kAmin dy,
// divided evenly among the elements that equal the result. To x the same, or 0 where include_self excludes x.
// kProd has no second derivative if several zeros of src have one destination.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      ScatterReduce reduce, ScatterReduceOptions options = {});

// y = value where `mask` is true, else x. mask and value broadcast to x's shape.
// Grad: to x, dy, 0 where masked; to value, the sum of dy where masked.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
// Returns the elements of x where `mask` is true, in row-major order. Waits for the device.
// Shapes: x and mask broadcast together -> [count].
// Grad: dy where `mask` is true, zeros elsewhere.
Tensor masked_select(const Tensor& x, const Tensor& mask);

// Returns zeros of mask's shape with dy's elements, in order, where `mask` is true: the transpose of
// masked_select.
// Errors: DTypeError unless mask is bool; ValueError when dy has too few elements.
Tensor masked_select_backward(const Tensor& dy, const Tensor& mask);
// Returns a copy of x with src's elements, in order, where `mask` is true. x and mask broadcast together. src
// may have more elements than the mask has true values.
// Errors: DTypeError unless mask is bool and src has x's dtype; ValueError when src has too few elements.
// Grad: to x, dy, 0 where masked; to src, masked_scatter_backward of dy.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src);
// Returns dy's elements where `mask`, of dy's shape, is true, followed by zeros, as a tensor of `shape`: the
// transpose of masked_scatter with respect to src.
// Errors: DTypeError unless mask is bool; ShapeError unless mask has dy's shape; ValueError when
// `shape` is too small.
Tensor masked_scatter_backward(const Tensor& dy, const Tensor& mask, const Shape& shape);

// Returns the positions of x's elements that are not 0. Waits for the device.
// Shapes: x with d dims -> i64[count,d].
Tensor nonzero(const Tensor& x);
Tensor argwhere(const Tensor& x);

// Indexes x's leading dims by tensors (NumPy's advanced indexing). An undefined index selects the whole dim.
// Indices broadcast together; negative ones count from the end. A bool mask selects the positions where it is
// true, and the call waits for the device. The common shape of the indices replaces the indexed dims, in
// their position if they are adjacent, else in front.
// Errors: also ValueError if all indices are undefined; ShapeError if they do not broadcast.
// Grad: dy added at the indexed elements.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);
// Returns a copy of x in which v replaces the indexed elements, or is added to them with `accumulate`, once
// per occurrence of an element. v broadcasts to the shape that index returns.
// Grad: to x, dy (0 where overwritten); to v, index of dy.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& v,
                 bool accumulate = false);

}  // namespace gradus
