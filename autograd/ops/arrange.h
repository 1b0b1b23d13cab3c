// Differentiable ops that reorder, repeat or select elements, named and defined as in PyTorch. They take all
// dtypes. Results are copies of x's dtype and device unless a comment states otherwise. A negative dim counts
// from the end; a dim that x does not have is an IndexError, an undefined tensor a StateError.
#pragma once

#include <optional>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns x with the order of elements along the given dims reversed, in x's memory layout.
// Errors: ShapeError for a dim that is named twice.
// Grad: dy flipped.
Tensor flip(const Tensor& x, const Dims& dims);
// fliplr reverses dim 1 (columns), flipud dim 0 (rows).
// Errors: ShapeError for fewer than 2 dims (fliplr) or 1 dim (flipud).
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);

// Returns x with elements moved by shifts[i] along dims[i] toward higher indices, cyclically. Without dims,
// the flattened x is moved by the only shift, and the result has x's shape.
// Errors: ShapeError unless there is one shift per dim, or one shift and no dims.
// Grad: dy rolled back.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});

// Returns x rotated by k * 90 degrees in the plane of two dims, from the first toward the second. Returns x
// itself if 4 divides k, and a view of a flipped copy if k is odd.
// Errors: ShapeError unless `dims` has two different dims of x.
// Grad: dy rotated back.
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});

// Return the matrices x with 0 above the given diagonal (tril), or with 0 below it (triu). Diagonal 0 is the
// main one, 1 the one above it.
// Shapes: x[...,n,m] -> [...,n,m].
// Errors: ShapeError for fewer than 2 dims.
// Grad: the same of dy.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

// As DiagonalOptions (autograd/ops/view.h), with the last two dims as default.
struct DiagEmbedOptions {
  int64_t offset = 0, dim1 = -2, dim2 = -1;
};
// Returns matrices with the last dim of x on a diagonal and zeros elsewhere. dim1 and dim2 are the rows' and
// columns' dims in the result; offset > 0 is above the main diagonal.
// Shapes: x[a,n] -> [a,n+|offset|,n+|offset|].
// Errors: ShapeError for no dims, or dim1 = dim2.
// Grad: the diagonal of dy.
Tensor diag_embed(const Tensor& x, DiagEmbedOptions options = {});
// For a vector x, returns the matrix with x on the diagonal; for a matrix x, its diagonal as a view.
// `diagonal` as in tril.
// Errors: ShapeError for another number of dims.
Tensor diag(const Tensor& x, int64_t diagonal = 0);

// Returns repeats[i] copies of x along dim i, one after another, as torch.Tensor.repeat. A `repeats` longer
// than x's dims adds leading dims. Returns x itself when nothing is repeated.
// Shapes: x[a,b], {2,3,4} -> [2,3a,4b].
// Errors: ShapeError for fewer repeats than dims; ValueError for a negative one.
// Grad: dy summed over the repetitions.
Tensor repeat(const Tensor& x, const Dims& repeats);
// As repeat, but `repeats` may be shorter than x's dims and then applies to the last dims.
Tensor tile(const Tensor& x, const Dims& repeats);

// Returns x with slice i along `dim` repeated `repeats` or counts[i] times, copies next to each other.
// Without a dim, x is flattened first. `size`, if passed, must be the sum of the counts; the host then does
// not wait for counts on a GPU.
// Shapes: x[a,n,b] with dim 1 -> [a,n repeats,b] or [a,sum counts,b]; counts[n] or of one
// element, i64 or i32.
// Errors: ValueError for a negative count, or a `size` that is not the sum; ShapeError unless there are n
// counts or one.
// Grad: dy summed over the repetitions.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& counts, std::optional<int64_t> dim = {},
                         std::optional<int64_t> size = {});

// Which vector varies along the first dim of the grid: the first (kIJ, matrix indexing) or the second (kXY,
// Cartesian indexing).
enum class MeshIndexing { kIJ, kXY };
// Returns the coordinates of the grid points that the vectors define, as views that repeat the vectors.
// Shapes: [n], [m], [k] -> three times [n,m,k]; three times [m,n,k] for kXY.
// Errors: ValueError for no vectors; ShapeError for more than one dim; DTypeError, DeviceError unless all
// vectors have one dtype and device.
// Grad: dy summed over the other dims.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, MeshIndexing indexing = MeshIndexing::kIJ);
// Returns the Cartesian product of the vectors, one combination per row; the last vector varies fastest.
// Shapes: [n], [m] -> [nm,2]; a single vector is returned unchanged, [n].
// Errors, grad: as meshgrid.
Tensor cartesian_prod(const std::vector<Tensor>& xs);

// Returns the combinations of r elements of the vector x in lexicographic order of positions, one per row.
// With replacement, an element may occur more than once.
// Shapes: x[n] -> [count,r]; [0,0] for r = 0.
// Errors: ShapeError unless x is a vector; ValueError for a negative r.
struct CombinationOptions {
  bool with_replacement = false;
};
Tensor combinations(const Tensor& x, int64_t r = 2, CombinationOptions options = {});

// Returns the block-diagonal matrix of xs. Scalars and vectors count as matrices of one row.
// Shapes: [a,b], [c,d] -> [a+c,b+d].
// Errors: ValueError for an empty list; ShapeError for a tensor of more than 2 dims.
Tensor block_diag(const std::vector<Tensor>& xs);

// Returns a view of x's storage: element i is at offset + sum_d i[d] strides[d], counted in elements from the
// start of the storage. The default offset is that of x. Elements of the view may overlap.
// Errors: ShapeError when the view exceeds the storage, or when the op is recorded and elements of x overlap;
// ValueError for a negative stride or offset.
// Grad: dy is added at x's elements. Elements of the storage that are not in x are constants.
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides,
                  std::optional<int64_t> offset = {});

}  // namespace gradus
