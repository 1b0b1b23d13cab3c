// Elements in another order, repeated, or left out; results are copies unless said otherwise. All dtypes.
#pragma once

#include <optional>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns x with the order of elements along the given dims reversed. In x's layout.
// Errors: ShapeError for a dim that is named twice.
// Grad: dy flipped.
Tensor flip(const Tensor& x, const Dims& dims);
// Flip the columns (dim 1), and the rows (dim 0).
// Errors: ShapeError for fewer than 2 dims, and 1.
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);

// Returns x with elements moved by shifts[i] along dims[i], toward higher indices; those that leave at the
// end come in at the start. Without dims the flattened x is moved, by one shift.
// Errors: ShapeError unless there is a shift per dim.
// Grad: dy rolled back.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});

// Returns x turned by k quarters in the plane of two dims, from the first toward the second; x
// itself for no turn.
// Errors: ShapeError unless `dims` names two dims.
// Grad: dy turned back.
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});

// Return what lies below, or above, the given diagonal of the matrices x or on it; 0 elsewhere. Diagonal 1 is
// the one above the main one.
// Shapes: x[...,n,m] -> [...,n,m].
// Errors: ShapeError for fewer than 2 dims.
// Grad: the same of dy.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

// As for diagonal, but of the last two dims.
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

// Returns x repeats[i] times along dim i, one after another; a longer list puts dims in front. x itself when
// nothing is repeated.
// Shapes: x[a,b], {2,3,4} -> [2,3a,4b].
// Errors: ShapeError for fewer repeats than dims; ValueError for a negative one.
// Grad: dy summed over the repetitions.
Tensor repeat(const Tensor& x, const Dims& repeats);
// The same, but a shorter list counts for the last dims.
Tensor tile(const Tensor& x, const Dims& repeats);

// Returns x with each slice along `dim` repeated in place: `repeats` times, or as often as `counts` says for
// it. Without a dim the flattened x. A number of slices that the caller knows in advance, `size`, saves
// waiting for the device.
// Shapes: x[a,n,b] with dim 1 -> [a,n repeats,b] or [a,sum counts,b]; counts[n] or of one
// element, i64 or i32.
// Errors: ValueError for a negative count, or a `size` that is not the sum;
// ShapeError for another number of counts.
// Grad: dy summed over the repetitions.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& counts, std::optional<int64_t> dim = {},
                         std::optional<int64_t> size = {});

// Which coordinate runs along the first dim of a grid: that of the first vector, or (xy) of the second.
enum class MeshIndexing { kIJ, kXY };
// Returns the coordinates of the grid that vectors span, as views that repeat them.
// Shapes: [n], [m], [k] -> three times [n,m,k]; xy: [m,n,k].
// Errors: ValueError for no vectors; ShapeError for more than one dim; DTypeError, DeviceError
// unless all are alike.
// Grad: dy summed over the other dims.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, MeshIndexing indexing = MeshIndexing::kIJ);
// Returns all combinations of the vectors' elements, the last one's changing fastest.
// Shapes: [n], [m] -> [nm,2]; of one vector itself.
Tensor cartesian_prod(const std::vector<Tensor>& xs);

// Returns the ways to choose r of the vector x's elements, in order, one a row; with replacement an element
// may come again.
// Shapes: x[n] -> [count,r].
// Errors: ShapeError unless x is a vector; ValueError for a negative r.
struct CombinationOptions {
  bool with_replacement = false;
};
Tensor combinations(const Tensor& x, int64_t r = 2, CombinationOptions options = {});

// Returns zeros with the matrices xs along the diagonal; numbers and vectors are taken for
// matrices of one row.
// Shapes: [a,b], [c,d] -> [a+c,b+d].
// Errors: ValueError for none; ShapeError for more than 2 dims.
Tensor block_diag(const std::vector<Tensor>& xs);

// Returns a view of the memory behind x: element i is where offset + sum i[d] strides[d] points to, in
// elements from the start of the storage; without an offset from x's first element. Windows may overlap.
// Errors: ShapeError when it reaches over the end of the storage, or when recorded and elements of x overlap;
// ValueError for a negative stride.
// Grad: dy added where x's elements lie; what is not x's is a constant.
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides,
                  std::optional<int64_t> offset = {});

}  // namespace gradus
