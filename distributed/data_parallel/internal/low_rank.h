// Linear algebra for PowerSGD whose results are bit for bit the same on every machine: unlike in a BLAS, they
// do not depend on the number of threads or the instruction set. Tensors are row-major, in host memory, and
// f32 or f64, the same for all arguments, and do not overlap; nothing is checked. Gradients are not recorded.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Makes the rows of x [r, n] orthonormal, in place and in order. A row of zeros may stay zero, and a row that
// is a linear combination of earlier rows may become zero or, with epsilon 0, a normalized rounding error.
// `epsilon` is added to norms.
// Source: modified Gram-Schmidt in f64, with two passes per row if epsilon is 0, otherwise one.
void orthonormalize(const Tensor& x, double epsilon);

// Adds a product: out[n, m] += scale * a[r, n]^T b[r, m], in the tensors' dtype.
void add_product(const Tensor& out, const Tensor& a, const Tensor& b, double scale);

}  // namespace gradus::dist::internal
