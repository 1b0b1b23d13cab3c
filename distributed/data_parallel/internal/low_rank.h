// Parts of low-rank compression that give the same bits on every machine. Unlike in a library's matrix
// product, neither the number of threads nor the machine's instructions matter.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Makes the rows of x [r,n] orthonormal, one after the other. A row of zeros may stay zero, and a row that
// depends linearly on those before it may become zero. `epsilon` is added to norms.
// Source: Gram-Schmidt, twice per vector.
void orthonormalize(const Tensor& x, double epsilon);

// Adds a product: out[n,m] += scale * a[r,n]^T b[r,m].
void add_product(const Tensor& out, const Tensor& a, const Tensor& b, double scale);

}  // namespace gradus::dist::internal
