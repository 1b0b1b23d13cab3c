// Ops that reorder, repeat or select elements. Results are copies unless said otherwise. All dtypes.
#pragma once

#include <optional>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns x with the order of elements along the given dims reversed, in x's layout.
// Errors: ShapeError for a dim that is named twice.
// Grad: dy flipped.
Tensor flip(const Tensor& x, const Dims& dims);
// Flip the columns (dim 1), and the rows (dim 0).
// Errors: ShapeError for fewer than 2 dims, and 1.
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);

// Returns x with elements moved by shifts[i] along dims[i], toward higher indices. Elements that leave at the
// end come in at the start. Without dims, x is flattened, moved by one shift, and given its shape again.
// Errors: ShapeError unless there is a shift per dim.
// Grad: dy rolled back.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});

// Returns x turned by k quarter turns in the plane of two dims, from the first toward the second. Returns x
// itself for no turn.
// Errors: ShapeError unless `dims` names two dims.
// Grad: dy turned back.
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});

// Return the matrices x with 0 above the given diagonal (tril), or with 0 below it (triu). Diagonal 0 is the
// main one, 1 the one above it.
// Shapes: x[...,n,m] -> [...,n,m].
// Errors: ShapeError for fewer than 2 dims.
// Grad: the same of dy.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

// The options of DiagonalOptions (autograd/ops/view.h), with the last two dims as default.
struct DiagEmbedOptions {
  int64_t offset = 0, dim1 = -2, dim2 = -1;
};
// Returns zeros with the last dim of x as a diagonal.
// Shapes: x[a,n] -> [a,n+|offset|,n+|offset|].
// Errors: ShapeError for no dims, or dim1 = dim2.
// Grad: the diagonal of dy.
Tensor diag_embed(const Tensor& x, DiagEmbedOptions options = {});
// Returns the matrix with the vector x as diagonal; or the diagonal of the matrix x, as a view.
// Errors: ShapeError for another number of dims.
Tensor diag(const Tensor& x, int64_t diagonal = 0);

// Returns x repeats[i] times along dim i, one copy after another. A longer list adds dims in front. Returns x
// itself when nothing is repeated.
// Shapes: x[a,b], {2,3,4} -> [2,3a,4b].
// Errors: ShapeError for fewer repeats than dims; ValueError for a negative one.
// Grad: dy summed over the repetitions.
Tensor repeat(const Tensor& x, const Dims& repeats);
// The same, but a shorter list applies to the last dims.
Tensor tile(const Tensor& x, const Dims& repeats);

// Returns x with each slice along `dim` repeated in place: `repeats` times, or the number of times that
// `counts` holds for the slice. Without a dim, x is flattened first. Pass `size`, the number of slices in the
// result, if it is known: the call then does not wait for the device.
// Shapes: x[a,n,b] with dim 1 -> [a,n repeats,b] or [a,sum counts,b]; counts[n] or of one
// element, i64 or i32.
// Errors: ValueError for a negative count, or a `size` that is not the sum; ShapeError for another
// number of counts.
// Grad: dy summed over the repetitions.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& counts, std::optional<int64_t> dim = {},
                         std::optional<int64_t> size = {});

// Which vector's coordinate runs along the first dim of a grid: the first vector's (kIJ) or
// the second's (kXY).
enum class MeshIndexing { kIJ, kXY };
// Returns the coordinates of the grid that the vectors span, as views that repeat the vectors.
// Shapes: [n], [m], [k] -> three times [n,m,k]; xy: [m,n,k].
// Errors: ValueError for no vectors; ShapeError for more than one dim; DTypeError, DeviceError
// unless all are alike.
// Grad: dy summed over the other dims.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, MeshIndexing indexing = MeshIndexing::kIJ);
// Returns all combinations of the vectors' elements. The last vector's elements change fastest.
// Shapes: [n], [m] -> [nm,2]; a single vector is returned as it is.
Tensor cartesian_prod(const std::vector<Tensor>& xs);

// Returns the ways to choose r elements of the vector x, in order, one per row. With replacement, an element
// may be chosen again.
// Shapes: x[n] -> [count,r].
// Errors: ShapeError unless x is a vector; ValueError for a negative r.
struct CombinationOptions {
  bool with_replacement = false;
};
Tensor combinations(const Tensor& x, int64_t r = 2, CombinationOptions options = {});

// Returns zeros with the matrices xs along the diagonal. Numbers and vectors count as matrices of one row.
// Shapes: [a,b], [c,d] -> [a+c,b+d].
// Errors: ValueError for none; ShapeError for more than 2 dims.
Tensor block_diag(const std::vector<Tensor>& xs);

// Returns a view of the memory behind x. Element i lies at offset + sum i[d] strides[d], counted in elements
// from the start of the storage. Without an offset it starts at x's first element. Windows may overlap.
// Errors: ShapeError when the view reaches past the end of the storage, or when it is recorded and x's own
// elements overlap; ValueError for a negative stride.
// Grad: dy added at x's elements. Elements of the view that are not x's count as constants.
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides,
                  std::optional<int64_t> offset = {});

}  // namespace gradus
