// Sparse gradients of embeddings: the rows that were read, without the zero rows. As Embedding(sparse=True)
// of PyTorch.
//
//   nn::Embedding table({.num_embeddings = 50000, .embedding_dim = 64, .sparse = true});
//   ...
//   autograd::SparseRows rows = autograd::sparse_rows(table.weight.grad());
//
// A sparse gradient is a tensor on the meta device with the gradient's shape and dtype; its storage owns the
// rows. Ops without support for sparse gradients throw, because a meta tensor has no elements. The sum of two
// sparse gradients is sparse, the sum with a dense gradient is dense. Rules, callbacks and autograd::grad get
// dense gradients.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// Row indices[i] of the gradient is values[i]; all other rows are 0.
struct SparseRows {
  Tensor indices;  // i64[n], ascending, without duplicates
  Tensor values;   // [n,...]
};

bool is_sparse(const Tensor& grad);
// Errors: ValueError unless `grad` is sparse.
const SparseRows& sparse_rows(const Tensor& grad);
// Returns the same gradient with all its rows; `grad` itself unless it is sparse.
Tensor to_dense(const Tensor& grad);
// Returns the tensor that has the gradient's elements: the values of a sparse one, else `grad` itself.
const Tensor& elements_of(const Tensor& grad);

// Returns the sparse gradient of this shape to whose row index[i] rows[i] is added, in the order of i.
// Entries with index[i] == skip are ignored. Indices lie in [0, shape[0]), so the default of -1 ignores none.
// Copies the index to the host, and waits for it.
// Shapes: index[n], i64 or i32; rows[n,...].
Tensor make_sparse(const Tensor& index, const Tensor& rows, const Shape& shape, int64_t skip = -1);
// Returns a + b of two sparse gradients of one shape.
Tensor add_sparse(const Tensor& a, const Tensor& b);

}  // namespace gradus::autograd
