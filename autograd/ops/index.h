// Indexing by tensors: indices are i64 or i32, masks bool. x[{...}] in gradus/autograd/indexing.h is
// the short form.
// Errors of all: DTypeError for another index dtype; IndexError naming index, dim and size for one out of
// range; DeviceError unless all are on one device.
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
// Returns zeros of `shape` with dy's slices added at `index`: the transpose of index_select.
Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index);
// Return x with the slices of src added at `index` (index_add), or put there (index_copy). Repeated indices
// add every slice; index_copy keeps the last.
// Shapes: x[a,n,b], index[k], src[a,k,b] -> [a,n,b].
// Grad: to x, dy (without the slices that index_copy overwrote); to src, index_select of dy.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Returns x with `value` in the slices at `index` along `dim`. Negative indices count from the end. A tensor
// `value` has one element.
// Errors: ShapeError for a value of more elements.
// Grad: to x, dy (0 where filled); to value, the sum of dy where filled.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);

// Return x with src in the part that select, slice or diagonal would return.
// Errors: ShapeError unless src has the shape of that part; those of select, slice and diagonal.
// Grad: to x, dy (0 where overwritten); to src, dy of that part.
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index);
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t start, int64_t stop,
                     int64_t step = 1);
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, DiagonalOptions options = {});

// Returns the elements at `index` of the flattened x. Negative indices count from the end.
// Shapes: index[...] -> [...].
// Grad: dy added where it was read.
Tensor take(const Tensor& x, const Tensor& index);
// Returns x with src's elements put at `index` of the flattened x, or added there with `accumulate`. Of
// repeated indices the last one stays.
// Errors: ShapeError unless index and src have the same number of elements.
Tensor put(const Tensor& x, const Tensor& index, const Tensor& src, bool accumulate = false);

// Returns y[i][j][k] = x[i][index[i][j][k]][k], for dim 1 of 3. index may be smaller than x in
// the other dims.
// Errors: ShapeError unless index fits x.
// Grad: scatter_add of dy into zeros.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
// The same with x and index broadcast against each other outside of `dim`.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int64_t dim);
// Returns zeros of `shape` with dy added where gather read: the transpose of gather.
Tensor gather_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index);

// Returns x with y[i][index[i][j][k]][k] = src[i][j][k], or `value`, for dim 1 of 3 (scatter), or with src
// added there (scatter_add).
// Errors: ShapeError unless index fits x and src.
// Grad: to x, dy (0 where scatter overwrote it); to src, gather of dy.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// How scatter_reduce combines the elements with the same destination.
enum class ScatterReduce { kSum, kProd, kMean, kAmax, kAmin };
struct ScatterReduceOptions {
  bool include_self = true;  // x's element at the destination counts as well
};
// Returns x with src[i][j][k] combined into y[i][index[i][j][k]][k], for dim 1 of 3. Elements of x that
// receive nothing keep their value. The mean of integers is rounded down.
// Errors: ShapeError unless index fits x and src; DTypeError for bool.
// Grad: to src: kSum dy; kMean dy / n; kProd dy times the product of the others; kAmax and kAmin dy, shared
// evenly among the elements that attain it. To x the same, or 0 where x does not count. kProd has no second
// derivative where several zeros of src meet.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      ScatterReduce reduce, ScatterReduceOptions options = {});

// Returns x with `value` where `mask` is true. x, mask and value broadcast together.
// Grad: to x, dy, 0 where masked; to value, the sum of dy where masked.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
// Returns the elements of x where `mask` is true, row-major. Waits for the device.
// Shapes: x and mask broadcast together -> [count].
// Grad: dy where `mask` is true, zeros elsewhere.
Tensor masked_select(const Tensor& x, const Tensor& mask);

// Returns zeros of mask's shape with dy put back where `mask` is true: the transpose of masked_select.
// Errors: DTypeError unless mask is bool; ValueError when dy has too few elements.
Tensor masked_select_backward(const Tensor& dy, const Tensor& mask);
// Returns x with src's elements, in order, where `mask` is true. x and mask broadcast together. src may have
// more elements than needed.
// Errors: DTypeError unless mask is bool and src has x's dtype; ValueError when src has too few elements.
// Grad: to x, dy, 0 where masked; to src, the elements of dy where masked, then zeros.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src);
// Returns a tensor of `shape` that begins with dy's elements where `mask`, of dy's shape, is true. The rest
// is zeros. It is the transpose of masked_scatter with respect to src.
// Errors: DTypeError unless mask is bool; ShapeError unless mask has dy's shape; ValueError when
// `shape` is too small.
Tensor masked_scatter_backward(const Tensor& dy, const Tensor& mask, const Shape& shape);

// Returns the positions of x's elements that are not 0. Waits for the device.
// Shapes: x with d dims -> i64[count,d].
Tensor nonzero(const Tensor& x);
Tensor argwhere(const Tensor& x);

// Indexes x's leading dims by tensors, as NumPy's advanced indexing does. An undefined index stands for a
// whole dim. Indices broadcast together; negative ones count from the end. A mask stands for the positions
// where it is true. The indices' common shape replaces the indexed dims: in their place when they are
// neighbors, in front otherwise.
// Grad: dy added where it was read.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);
// Returns x with v put at the indexed elements, or added there with `accumulate`, also at repeated ones. v
// broadcasts to the shape that index returns.
// Grad: to x, dy (0 where overwritten); to v, index of dy.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& v,
                 bool accumulate = false);

}  // namespace gradus
