// Matrix and vector products, differentiable to any order. matmul and linear are in
// gradus/autograd/ops/linalg/matmul.h, einsum in gradus/autograd/ops/linalg/einsum.h.
// Errors of all ops: ShapeError for operands whose dims or sizes do not match the stated shapes; DTypeError
// and DeviceError when operands differ; DTypeError unless floating, except for outer, kron and cross.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Multiplies two matrices, without broadcasting.
// Shapes: a [M,K], b [K,N] -> [M,N].
// Grad: da = dy b^T, db = a^T dy.
Tensor mm(const Tensor& a, const Tensor& b);
// Multiplies the matrices of two batches, without broadcasting.
// Shapes: a [G,M,K], b [G,K,N] -> [G,M,N].
Tensor bmm(const Tensor& a, const Tensor& b);
// Multiplies a matrix by a vector.
// Shapes: a [M,K], v [K] -> [M].
Tensor mv(const Tensor& a, const Tensor& v);
// Dot product of two vectors.
// Shapes: a [K], b [K] -> [].
Tensor dot(const Tensor& a, const Tensor& b);
// Inner products along the last dims: y[i,j] = sum over k of a[i,k] b[j,k]. A scalar multiplies the other.
// Shapes: a [...,K], b [---,K] -> [...,---].
Tensor inner(const Tensor& a, const Tensor& b);
// Outer product: y[i,j] = a[i] b[j].
// Shapes: a [M], b [N] -> [M,N].
Tensor outer(const Tensor& a, const Tensor& b);

// The factors in beta c + alpha a b. With beta 0, c is not read, so its infinities and NaN have no effect.
struct AddmmOptions {
  double beta = 1;
  double alpha = 1;
};
// Adds a product of matrices: y = beta c + alpha a b.
// Shapes: c broadcasts to [M,N], a [M,K], b [K,N] -> [M,N].
// Grad: dc = beta dy, da = alpha dy b^T, db = alpha a^T dy.
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
// The same for a matrix and a vector.
// Shapes: c broadcasts to [M], a [M,K], v [K] -> [M].
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& v, const AddmmOptions& options = {});
// The same for batches of matrices.
// Shapes: c broadcasts to [G,M,N], a [G,M,K], b [G,K,N] -> [G,M,N].
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});

// Applies a bilinear form per output: y[...,o] = sum over i,j of a[...,i] w[o,i,j] b[...,j] + bias[o].
// Shapes: a [...,I], b [...,J], w [O,I,J], bias [O] or undefined -> [...,O].
Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& w, const Tensor& bias = {});

// Tensor contraction: sum of products over the last `dims` dims of a and the first `dims` of b, or over pairs
// of listed dims.
// Shapes: a [...,K1,K2], b [K1,K2,---] -> [...,---] for 2 dims.
// Errors: ShapeError when the sizes, or the numbers of dims, differ; ValueError for a number below 0 or above
// the number of dims of a or b; IndexError for a dim that they do not have.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b);

// Kronecker product: the blocks a[i,j] b. Missing leading dims count as dims of size 1.
// Shapes: a [M,N], b [P,Q] -> [MP,NQ].
// Errors: ShapeError for more than 4 dims.
Tensor kron(const Tensor& a, const Tensor& b);
// Product of several matrices, in the order with the fewest scalar multiplications.
// Errors: ValueError for no matrices; ShapeError unless all are matrices with matching inner sizes.
Tensor chain_matmul(const std::vector<Tensor>& matrices);
// Raises a square matrix, or each of a batch, to a power: x^n. n = 0 gives the identity.
// Shapes: [...,M,M] -> [...,M,M].
// Errors: ShapeError unless square; ValueError for n below 0.
Tensor matrix_power(const Tensor& x, int64_t n);
// Cross product of vectors of 3 elements along `dim`. The other dims broadcast.
// Shapes: a [...,3], b [...,3] -> [...,3].
// Errors: ShapeError when the numbers of dims differ or a size in `dim` is not 3; IndexError for a dim that
// they do not have.
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1);

}  // namespace gradus
