// Embedding: a table of vectors, looked up by index.
#pragma once

#include <optional>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct EmbeddingOptions {
  Required<int64_t, "num_embeddings"> num_embeddings;
  Required<int64_t, "embedding_dim"> embedding_dim;
  // The row of this index starts at 0 and is not learned. Negative counts from the end.
  std::optional<int64_t> padding_idx = {};
  std::optional<double> max_norm = {};  // longer rows are scaled down in the table when looked up
  double norm_type = 2;                 // the p of the p-norm that max_norm bounds
  bool scale_grad_by_freq = false;      // divides a row's gradient by how often the row is looked up
  // The gradient has only the rows that were looked up; SGD, Adagrad, Adam and RMSprop step these rows alone.
  bool sparse = false;
};
extern template class ModuleWith<EmbeddingOptions, Layer>;

// Looks up rows of weight as embedding does. weight starts normal with deviation 1.
// Shapes: index i64 or i32 [...] -> [...,embedding_dim]; weight [num_embeddings,embedding_dim].
class Embedding final : public LayerWith<EmbeddingOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial()};
  Tensor forward(const Tensor& index) override;

 private:
  Tensor initial() const;
};

}  // namespace gradus::nn
