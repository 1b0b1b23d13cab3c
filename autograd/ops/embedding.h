// Embedding lookup: rows of a weight matrix selected by integer indices, and sums, means and maxima of such rows.
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

enum class BagMode { kSum, kMean, kMax };

struct EmbeddingBagFuncOptions {
  BagMode mode = BagMode::kMean;
  Tensor per_sample_weights = {};    // like `index`, of weight's dtype: factors of the rows; kSum only
  bool include_last_offset = false;  // offsets has a last element more: the end of the last bag
  // As EmbeddingFuncOptions. Entries of padding_idx do not count. kMax takes no scale_grad_by_freq and no sparse.
  std::optional<int64_t> padding_idx = {};
  bool scale_grad_by_freq = false;
  bool sparse = false;
};

// Returns the sum, mean or maximum of the rows of `weight` at the indices of each bag: a row of `index` [B,n], or, for
// `index` [n], the entries from offsets[b] on to the next offset. An empty bag gives 0.
// Shapes: index [B,n], weight [V,E] -> [B,E]; index [n], offsets [B] -> [B,E].
// Errors: as embedding; also ShapeError for other shapes, StateError for index [n] without offsets; ValueError for options that the mode does not take, and for
// offsets on a CPU that do not begin with 0, decrease or exceed n.
// Grad: to weight and per_sample_weights. With kMax dy is divided evenly among equal maxima.
Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets = {},
                     const EmbeddingBagFuncOptions& options = {});

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
