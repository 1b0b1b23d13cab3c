// Transformer encoders: TransformerEncoderLayer and TransformerEncoder.
//
//   nn::TransformerEncoder encoder(
//       {.layer = {.d_model = 64, .nhead = 4, .batch_first = true}, .num_layers = 6});
//   Tensor y = encoder(x);                                     // x [N,T,64]
//   Tensor z = encoder(x, {.src_key_padding_mask = padding});  // bool[N,T], true where a position is padding
#pragma once

#include "gradus/nn/containers.h"
#include "gradus/nn/layers/attention.h"
#include "gradus/nn/layers/dropout.h"
#include "gradus/nn/layers/layer_norm.h"

namespace gradus::nn {

enum class TransformerActivation { kReLU, kGELU };

struct TransformerEncoderLayerOptions {
  Required<int64_t, "d_model"> d_model;
  Required<int64_t, "nhead"> nhead;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = TransformerActivation::kReLU;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;  // normalizes the inputs of attention and feed-forward instead of their outputs
  bool bias = true;
};
extern template class ModuleWith<TransformerEncoderLayerOptions, Layer>;

// Masks as in MultiheadAttention: true excludes a position; floating-point masks are added to the scores.
struct TransformerMasks {
  Tensor mask = {};                  // [T,T] or [N*nhead,T,T]
  Tensor src_key_padding_mask = {};  // [N,T], or [T] without a batch
  bool causal = false;               // excludes positions after the query's
};

// Self-attention, then a feed-forward network of two linear layers. Each of these two blocks has dropout, a
// residual connection and a layer norm: norm(x + block(x)), or with norm_first x + block(norm(x)).
// Shapes: x [T,N,d_model], with batch_first [N,T,d_model], or [T,d_model] -> the same. Calls with masks run
// no hooks.
// Errors of the constructor: ValueError for dim_feedforward < 1, and those of MultiheadAttention.
// Source: Vaswani et al., "Attention is all you need", 2017.
class TransformerEncoderLayer final : public LayerWith<TransformerEncoderLayerOptions> {
 public:
  using LayerWith::LayerWith;
  using LayerWith::operator();

  MultiheadAttention self_attn{this, "self_attn", attention_options()};
  Linear linear1{this, "linear1", {.in = *options().d_model, .out = hidden_dim(), .bias = options().bias}};
  Dropout dropout{this, "dropout", {.p = options().dropout}};
  Linear linear2{this, "linear2", {.in = hidden_dim(), .out = *options().d_model, .bias = options().bias}};
  LayerNorm norm1{this, "norm1", norm_options()};
  LayerNorm norm2{this, "norm2", norm_options()};
  Dropout dropout1{this, "dropout1", {.p = options().dropout}};
  Dropout dropout2{this, "dropout2", {.p = options().dropout}};

  Tensor forward(const Tensor& x) override { return encode(x, {}); }
  Tensor operator()(const Tensor& x, const TransformerMasks& masks);

 private:
  int64_t hidden_dim() const;
  MultiheadAttentionOptions attention_options() const;
  LayerNormOptions norm_options() const;
  Tensor encode(const Tensor& x, const TransformerMasks& masks);
  Tensor self_attention_block(const Tensor& x, const TransformerMasks& masks);
  Tensor feedforward_block(const Tensor& x);
};

extern template class Container<TransformerEncoderLayer>;

struct TransformerEncoderOptions {
  TransformerEncoderLayerOptions layer;
  Required<int64_t, "num_layers"> num_layers;
  bool norm = false;  // normalizes the result
};
extern template class ModuleWith<TransformerEncoderOptions, Layer>;

// A stack of encoder layers. Each layer has its own random initial weights, whereas torch.nn copies those of
// one layer.
// Shapes, errors: as TransformerEncoderLayer; also ValueError for num_layers < 1. Hooks of the layers never
// run.
class TransformerEncoder final : public LayerWith<TransformerEncoderOptions> {
 public:
  TransformerEncoder(Module* parent, std::string name, Options options);
  explicit TransformerEncoder(Options options);
  using LayerWith::operator();

  ModuleList<TransformerEncoderLayer> layers{this, "layers"};
  std::unique_ptr<LayerNorm> norm;  // null unless options().norm

  Tensor forward(const Tensor& x) override { return encode(x, {}); }
  Tensor operator()(const Tensor& x, const TransformerMasks& masks);

 private:
  void add_layers();
  Tensor encode(const Tensor& x, const TransformerMasks& masks);
};

}  // namespace gradus::nn
