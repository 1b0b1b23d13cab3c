// TransformerEncoderLayer: self-attention and a feed-forward network, each with dropout, a residual
// connection and layer norm (before the block with norm_first, else after it). TransformerEncoder: a stack of
// these layers. x and results are [T, N, d_model], with batch_first [N, T, d_model], or [T, d_model]. Masks
// as in MultiheadAttention.
#include "gradus/nn/layers/transformer.h"

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"

namespace gradus::nn {

// Returns the width of the hidden layer, checked here because members are constructed from it.
int64_t TransformerEncoderLayer::hidden_dim() const {
  if (options().dim_feedforward < 1)
    throw ValueError("TransformerEncoderLayer", "expected dim_feedforward >= 1, got ",
                     options().dim_feedforward);
  return options().dim_feedforward;
}

MultiheadAttentionOptions TransformerEncoderLayer::attention_options() const {
  const Options& o = options();
  return {.embed_dim = *o.d_model,
          .num_heads = *o.nhead,
          .dropout = o.dropout,
          .bias = o.bias,
          .batch_first = o.batch_first};
}

LayerNormOptions TransformerEncoderLayer::norm_options() const {
  return {.shape = *options().d_model, .eps = options().layer_norm_eps, .bias = options().bias};
}

// dropout1(self_attn(x, x, x)), without the residual connection.
Tensor TransformerEncoderLayer::self_attention_block(const Tensor& x, const TransformerMasks& masks) {
  return dropout1(self_attn(x, x, x,
                            {.key_padding_mask = masks.src_key_padding_mask,
                             .attn_mask = masks.mask,
                             .causal = masks.causal,
                             .need_weights = false})
                      .output);
}

// dropout2(linear2(dropout(activation(linear1(x))))), without the residual connection.
Tensor TransformerEncoderLayer::feedforward_block(const Tensor& x) {
  Tensor h = linear1(x);
  h = options().activation == TransformerActivation::kGELU ? gelu(h) : relu(std::move(h));
  return dropout2(linear2(dropout(std::move(h))));
}

Tensor TransformerEncoderLayer::encode(const Tensor& x, const TransformerMasks& masks) {
  if (options().norm_first) {
    const Tensor h = x + self_attention_block(norm1(x), masks);
    return h + feedforward_block(norm2(h));
  }
  const Tensor h = norm1(x + self_attention_block(x, masks));
  return norm2(h + feedforward_block(h));
}

TransformerEncoder::TransformerEncoder(Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), options) {
  add_layers();
}
TransformerEncoder::TransformerEncoder(Options options) : LayerWith(options) { add_layers(); }

void TransformerEncoder::add_layers() {
  const Options& o = options();
  if (o.num_layers < 1)
    throw ValueError("TransformerEncoder", "expected num_layers >= 1, got ", *o.num_layers);
  for (int64_t i = 0; i < o.num_layers; ++i) layers.add(o.layer);
  if (o.norm)
    norm = std::make_unique<LayerNorm>(
        this, "norm",
        LayerNormOptions{.shape = *o.layer.d_model, .eps = o.layer.layer_norm_eps, .bias = o.layer.bias});
}

Tensor TransformerEncoderLayer::operator()(const Tensor& x, const TransformerMasks& masks) {
  return call([&] { return encode(x, masks); });
}

Tensor TransformerEncoder::operator()(const Tensor& x, const TransformerMasks& masks) {
  return call([&] { return encode(x, masks); });
}

Tensor TransformerEncoder::encode(const Tensor& x, const TransformerMasks& masks) {
  Tensor h = x;
  for (auto& layer : layers) h = layer(h, masks);
  return norm ? (*norm)(h) : h;
}

template class Container<TransformerEncoderLayer>;
template class ModuleWith<TransformerEncoderLayerOptions, Layer>;
template class ModuleWith<TransformerEncoderOptions, Layer>;
}  // namespace gradus::nn
