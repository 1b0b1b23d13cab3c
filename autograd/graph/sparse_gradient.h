// Sparse gradients: the rows of a gradient that an embedding has read, without the zeros of all others.
//
//   nn::Embedding table({.num_embeddings = 50000, .embedding_dim = 64, .sparse = true});
//   ...
//   autograd::SparseRows rows = autograd::sparse_rows(table.weight.grad());
//
// A sparse gradient is a tensor with the gradient's shape and dtype on the meta device. So ops that do not know
// sparse gradients throw, and never compute with other numbers. Gradients add up as usual; a sum with a dense
// gradient is dense. Rules and callbacks get dense gradients, and so does autograd::grad.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// Row indices[i] of the gradient is values[i]; all other rows are 0.
struct SparseRows {
  Tensor indices;  // i64[n], ascending, each once
  Tensor values;   // [n,...]
};

bool is_sparse(const Tensor& grad);
// Errors: ValueError unless `grad` is sparse.
const SparseRows& sparse_rows(const Tensor& grad);
// Returns the same gradient with all its rows; `grad` itself unless it is sparse.
Tensor to_dense(const Tensor& grad);
// Returns the tensor that has the gradient's elements: the values of a sparse one, else `grad` itself.
const Tensor& elements_of(const Tensor& grad);

// Returns a sparse gradient of this shape with rows[i] added at index[i], in order, except where index[i] is
// `skip` (negative: none). Waits for the index.
// Shapes: index[n], i64 or i32; rows[n,...].
Tensor make_sparse(const Tensor& index, const Tensor& rows, const Shape& shape, int64_t skip = -1);
// Returns a + b of two sparse gradients of one shape.
Tensor add_sparse(const Tensor& a, const Tensor& b);

}  // namespace gradus::autograd
