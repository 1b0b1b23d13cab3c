// TransformerEncoderLayer: self-attention and a feed-forward network, each with dropout, a residual
// connection and layer norm (before the block with norm_first, else after it). TransformerEncoder: a stack of
// these layers. TransformerDecoderLayer has a second attention, to the memory, between the two; TransformerDecoder
// and Transformer are composed of these. x and results are [T, N, d_model], with batch_first [N, T, d_model], or
// [T, d_model]. Masks as in MultiheadAttention.
#include "gradus/nn/layers/transformer.h"

#include <cmath>
#include <utility>

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/arrange.h"
#include "gradus/nn/init.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {

namespace {

Tensor activated(const TransformerEncoderLayerOptions& o, Tensor x) {
  return o.activation == TransformerActivation::kGELU ? gelu(x) : relu(std::move(x));
}

// norm(x + block(x)), or with norm_first x + block(norm(x)).
template <class Block>
Tensor with_residual(const TransformerEncoderLayerOptions& o, LayerNorm& norm, const Tensor& x, Block block) {
  return o.norm_first ? x + block(norm(x)) : norm(x + block(x));
}

// Adds the layers of an encoder or decoder, and returns its norm; `type` names it in errors.
template <class Stack> std::unique_ptr<LayerNorm> add_layers_to(const char* type, Stack& stack) {
  const auto& o = stack.options();
  if (o.num_layers < 1) throw ValueError(type, "expected num_layers >= 1, got ", *o.num_layers);
  for (int64_t i = 0; i < o.num_layers; ++i) stack.layers.add(o.layer);
  return o.norm ? std::make_unique<LayerNorm>(&stack, "norm", internal::norm_options(o.layer)) : nullptr;
}

}  // namespace

namespace internal {

MultiheadAttentionOptions attention_options(const TransformerEncoderLayerOptions& o) {
  return {.embed_dim = *o.d_model,
          .num_heads = *o.nhead,
          .dropout = o.dropout,
          .bias = o.bias,
          .batch_first = o.batch_first};
}

LinearOptions linear1_options(const char* layer, const TransformerEncoderLayerOptions& o) {
  if (o.dim_feedforward < 1)
    throw ValueError(layer, "expected dim_feedforward >= 1, got ", o.dim_feedforward);
  return {.in = *o.d_model, .out = o.dim_feedforward, .bias = o.bias};
}

LinearOptions linear2_options(const TransformerEncoderLayerOptions& o) {
  return {.in = o.dim_feedforward, .out = *o.d_model, .bias = o.bias};
}

LayerNormOptions norm_options(const TransformerEncoderLayerOptions& o) {
  return {.shape = *o.d_model, .eps = o.layer_norm_eps, .bias = o.bias};
}

}  // namespace internal

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
  return dropout2(linear2(dropout(activated(options(), linear1(x)))));
}

Tensor TransformerEncoderLayer::encode(const Tensor& x, const TransformerMasks& masks) {
  const auto attend = [&](const Tensor& v) { return self_attention_block(v, masks); };
  const Tensor h = with_residual(options(), norm1, x, attend);
  return with_residual(options(), norm2, h, [&](const Tensor& v) { return feedforward_block(v); });
}

std::unique_ptr<LayerNorm> TransformerEncoder::add_layers() {
  return add_layers_to("TransformerEncoder", *this);
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

Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory,
                                           const TransformerDecoderMasks& masks) {
  return call([&] {
    const auto attend_self = [&](const Tensor& x) {
      return dropout1(self_attn(x, x, x,
                                {.key_padding_mask = masks.tgt_key_padding_mask,
                                 .attn_mask = masks.tgt_mask,
                                 .causal = masks.tgt_causal,
                                 .need_weights = false})
                          .output);
    };
    const auto attend_memory = [&](const Tensor& x) {
      return dropout2(multihead_attn(x, memory, memory,
                                     {.key_padding_mask = masks.memory_key_padding_mask,
                                      .attn_mask = masks.memory_mask,
                                      .causal = masks.memory_causal,
                                      .need_weights = false})
                          .output);
    };
    const auto feed_forward = [&](const Tensor& x) {
      return dropout3(linear2(dropout(activated(options(), linear1(x)))));
    };
    const Tensor g = with_residual(options(), norm1, tgt, attend_self);
    const Tensor h = with_residual(options(), norm2, g, attend_memory);
    return with_residual(options(), norm3, h, feed_forward);
  });
}

std::unique_ptr<LayerNorm> TransformerDecoder::add_layers() {
  return add_layers_to("TransformerDecoder", *this);
}

Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory,
                                      const TransformerDecoderMasks& masks) {
  return call([&] {
    Tensor h = tgt;
    for (auto& layer : layers) h = layer(h, memory, masks);
    return norm ? (*norm)(h) : h;
  });
}

Transformer::Transformer(Module* parent, std::string name, Options options)
    : ModuleWith(parent, std::move(name), options) {
  reset_parameters();
}
Transformer::Transformer(Options options) : ModuleWith(options) { reset_parameters(); }

TransformerEncoderLayerOptions Transformer::layer_options() const {
  const Options& o = options();
  return {.d_model = o.d_model,
          .nhead = o.nhead,
          .dim_feedforward = o.dim_feedforward,
          .dropout = o.dropout,
          .activation = o.activation,
          .layer_norm_eps = o.layer_norm_eps,
          .batch_first = o.batch_first,
          .norm_first = o.norm_first,
          .bias = o.bias};
}

void Transformer::reset_parameters() {
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
}

Tensor Transformer::operator()(const Tensor& src, const Tensor& tgt, const TransformerCallOptions& masks) {
  return call([&] {
    const Tensor memory = encoder(src, {.mask = masks.src_mask,
                                        .src_key_padding_mask = masks.src_key_padding_mask,
                                        .causal = masks.src_causal});
    return decoder(tgt, memory,
                   {.tgt_mask = masks.tgt_mask,
                    .memory_mask = masks.memory_mask,
                    .tgt_key_padding_mask = masks.tgt_key_padding_mask,
                    .memory_key_padding_mask = masks.memory_key_padding_mask,
                    .tgt_causal = masks.tgt_causal,
                    .memory_causal = masks.memory_causal});
  });
}

Tensor Transformer::generate_square_subsequent_mask(int64_t size, const TensorOptions& options) {
  return triu(full({size, size}, -INFINITY, options), 1);
}

template class Container<TransformerDecoderLayer>;
template class Container<TransformerEncoderLayer>;
template class ModuleWith<TransformerDecoderLayerOptions>;
template class ModuleWith<TransformerDecoderOptions>;
template class ModuleWith<TransformerEncoderLayerOptions, Layer>;
template class ModuleWith<TransformerEncoderOptions, Layer>;
template class ModuleWith<TransformerOptions>;
}  // namespace gradus::nn
