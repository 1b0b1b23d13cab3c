// Embedding lookup: rows of a weight matrix selected by integer indices.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus {

struct EmbeddingFuncOptions {
  std::optional<int64_t> padding_idx = {};  // this row gets no gradient; negative counts from the end
  bool scale_grad_by_freq = false;          // divides a row's gradient by its count in `index`
  // The gradient of weight is sparse (gradus/autograd/graph/sparse_gradient.h). It is dense nevertheless if
  // weight is not on a CPU, or if a recording follows the backward.
  bool sparse = false;
};

// Returns the rows of `weight` at `index` (i64 or i32).
// Shapes: index[...], weight[V,E] -> [...,E].
// Errors: ShapeError unless weight is a matrix; DTypeError for another index dtype; IndexError for an index
// outside of [0, V), or padding_idx outside of [-V, V); DeviceError.
// Grad: to weight, dy added to the rows that were read, except to row padding_idx.
Tensor embedding(const Tensor& index, const Tensor& weight, EmbeddingFuncOptions options = {});

// Gradient of embedding: dw[v] = sum of the rows dy[i] with index[i] = v, over i with index[i] != skip. A
// negative `skip` skips none.
// Shapes: dy[...,E], index[...] -> [rows,E].
// Errors: ShapeError unless dy has a row per index.
// Grad: to dy, the rows of the gradient at `index`, 0 for `skip`.
Tensor embedding_backward(const Tensor& dy, const Tensor& index, int64_t rows, int64_t skip = -1);

// Scales the rows of `weight` listed in `index` in place to a p-norm of at most `max_norm`. Never recorded,
// even if weight is attached. Called before embedding, equals max_norm of torch.nn.functional.embedding.
// Errors: ShapeError, DTypeError, IndexError as embedding, and for a strided weight; ValueError unless
// max_norm is at least 0.
void embedding_renorm_(const Tensor& weight, const Tensor& index, double max_norm, double p = 2);

}  // namespace gradus
