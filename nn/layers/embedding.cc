// Embedding and EmbeddingBag: the initial weight, normal with row padding_idx 0, and the lookup by the op. With
// max_norm each forward first scales the looked-up rows of the weight in place, outside of the graph.
#include "gradus/nn/layers/embedding.h"

#include "gradus/autograd/ops/embedding.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"

namespace gradus::nn {

namespace {

template <class O> Tensor initial_table(const char* layer, const O& o) {
  if (o.num_embeddings < 1 || o.embedding_dim < 1)
    throw ValueError(layer, "expected num_embeddings, embedding_dim >= 1, got ", *o.num_embeddings, " and ",
                     *o.embedding_dim);
  if (o.padding_idx && (*o.padding_idx < -o.num_embeddings || *o.padding_idx >= o.num_embeddings))
    throw ValueError(layer, "expected padding_idx in [-", *o.num_embeddings, ", ", *o.num_embeddings,
                     "), got ", *o.padding_idx);
  const Tensor w =
      init::normal_(empty({o.num_embeddings, o.embedding_dim}, {.device = internal::initial_device()}));
  if (o.padding_idx) init::zeros_(select(w, 0, *o.padding_idx));
  return w;
}

}  // namespace

Tensor Embedding::initial() const { return initial_table("Embedding", options()); }
Tensor EmbeddingBag::initial() const { return initial_table("EmbeddingBag", options()); }

Tensor Embedding::forward(const Tensor& index) {
  const Options& o = options();
  if (o.max_norm) embedding_renorm_(weight, index, *o.max_norm, o.norm_type);
  return embedding(
      index, weight,
      {.padding_idx = o.padding_idx, .scale_grad_by_freq = o.scale_grad_by_freq, .sparse = o.sparse});
}

Tensor EmbeddingBag::operator()(const Tensor& index, const Tensor& offsets,
                                const Tensor& per_sample_weights) {
  return call([&] { return bags(index, offsets, per_sample_weights); });
}

Tensor EmbeddingBag::bags(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights) {
  const Options& o = options();
  if (o.max_norm) embedding_renorm_(weight, index, *o.max_norm, o.norm_type);
  return embedding_bag(index, weight, offsets,
                       {.mode = o.mode,
                        .per_sample_weights = per_sample_weights,
                        .include_last_offset = o.include_last_offset,
                        .padding_idx = o.padding_idx,
                        .scale_grad_by_freq = o.scale_grad_by_freq,
                        .sparse = o.sparse});
}

template class ModuleWith<EmbeddingBagOptions, Layer>;
template class ModuleWith<EmbeddingOptions, Layer>;
}  // namespace gradus::nn
