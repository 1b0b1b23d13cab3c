// Pieces of low-rank compression whose results are the same bits wherever they are computed: neither the
// number of threads nor the machine's instructions count, as they do in a library's matrix product.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Makes the rows of x [r,n] orthonormal, one after the other; a row of zeros, or one that depends on those
// before it, may stay zero. `epsilon` is added to norms.
// Source: Gram-Schmidt, twice per vector.
void orthonormalize(const Tensor& x, double epsilon);

// out[n,m] += scale * a[r,n]^T b[r,m].
void add_product(const Tensor& out, const Tensor& a, const Tensor& b, double scale);

}  // namespace gradus::dist::internal
