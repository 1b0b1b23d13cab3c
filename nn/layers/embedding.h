// Embedding: a learned table of vectors, looked up by index. EmbeddingBag: sums, means or maxima of such vectors.
#pragma once

#include <optional>

#include "gradus/autograd/ops/embedding.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct EmbeddingOptions {
  Required<int64_t, "num_embeddings"> num_embeddings;
  Required<int64_t, "embedding_dim"> embedding_dim;
  // The row of this index is initialized to 0 and gets no gradient. Negative counts from the end.
  std::optional<int64_t> padding_idx = {};
  std::optional<double> max_norm = {};  // a lookup first scales longer rows to this norm, in place
  double norm_type = 2;                 // p of the p-norm in max_norm
  bool scale_grad_by_freq = false;      // divides a row's gradient by its count in the index
  // The gradient is sparse: it has only the rows that were looked up. SGD, Adagrad, Adam and RMSprop update
  // these rows alone.
  bool sparse = false;
};
extern template class ModuleWith<EmbeddingOptions, Layer>;

// Applies embedding. The initial weight is standard normal.
// Shapes: index i64 or i32 [...] -> [...,embedding_dim]; weight [num_embeddings,embedding_dim].
// Errors: ValueError of the constructor for sizes below 1 or padding_idx out of range; DTypeError of a call
// for another index dtype, IndexError for an index outside of [0, num_embeddings), ValueError for max_norm <
// 0.
class Embedding final : public LayerWith<EmbeddingOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial()};
  Tensor forward(const Tensor& index) override;

 private:
  Tensor initial() const;
};

struct EmbeddingBagOptions {
  Required<int64_t, "num_embeddings"> num_embeddings;
  Required<int64_t, "embedding_dim"> embedding_dim;
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  BagMode mode = BagMode::kMean;
  bool sparse = false;
  bool include_last_offset = false;         // offsets has a last element more: the end of the last bag
  std::optional<int64_t> padding_idx = {};  // entries that do not count
};
extern template class ModuleWith<EmbeddingBagOptions, Layer>;

// Applies embedding_bag. The options are those of Embedding and of the op; initial weight as Embedding's.
// Shapes: index [B,n] -> [B,embedding_dim]; index [n] and offsets [B] -> [B,embedding_dim]; per_sample_weights like
// index. Calls with offsets run no hooks.
// Errors: as Embedding, and those of embedding_bag.
class EmbeddingBag final : public LayerWith<EmbeddingBagOptions> {
 public:
  using LayerWith::LayerWith;
  using LayerWith::operator();
  Parameter weight{this, "weight", initial()};
  Tensor forward(const Tensor& index) override { return bags(index, {}, {}); }
  Tensor operator()(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights = {});

 private:
  Tensor initial() const;
  Tensor bags(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights);
};

}  // namespace gradus::nn
