// Transformers: TransformerEncoderLayer and TransformerDecoderLayer, stacks of them (TransformerEncoder,
// TransformerDecoder), and Transformer, an encoder and a decoder.
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
using TransformerDecoderLayerOptions = TransformerEncoderLayerOptions;
extern template class ModuleWith<TransformerDecoderLayerOptions>;

// Masks as in MultiheadAttention: true excludes a position; floating-point masks are added to the scores.
struct TransformerMasks {
  Tensor mask = {};                  // [T,T] or [N*nhead,T,T]
  Tensor src_key_padding_mask = {};  // [N,T], or [T] without a batch
  bool causal = false;               // excludes positions after the query's
};

namespace internal {
// The options of the parts of an encoder or decoder layer.
MultiheadAttentionOptions attention_options(const TransformerEncoderLayerOptions& o);
// Errors, naming `layer`: ValueError for dim_feedforward < 1.
LinearOptions linear1_options(const char* layer, const TransformerEncoderLayerOptions& o);
LinearOptions linear2_options(const TransformerEncoderLayerOptions& o);
LayerNormOptions norm_options(const TransformerEncoderLayerOptions& o);
}  // namespace internal

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

  MultiheadAttention self_attn{this, "self_attn", internal::attention_options(options())};
  Linear linear1{this, "linear1", internal::linear1_options("TransformerEncoderLayer", options())};
  Dropout dropout{this, "dropout", {.p = options().dropout}};
  Linear linear2{this, "linear2", internal::linear2_options(options())};
  LayerNorm norm1{this, "norm1", internal::norm_options(options())};
  LayerNorm norm2{this, "norm2", internal::norm_options(options())};
  Dropout dropout1{this, "dropout1", {.p = options().dropout}};
  Dropout dropout2{this, "dropout2", {.p = options().dropout}};

  Tensor forward(const Tensor& x) override { return encode(x, {}); }
  Tensor operator()(const Tensor& x, const TransformerMasks& masks);

 private:
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
  using LayerWith::LayerWith;
  using LayerWith::operator();

  ModuleList<TransformerEncoderLayer> layers{this, "layers"};
  std::unique_ptr<LayerNorm> norm = add_layers();  // null unless options().norm

  Tensor forward(const Tensor& x) override { return encode(x, {}); }
  Tensor operator()(const Tensor& x, const TransformerMasks& masks);

 private:
  std::unique_ptr<LayerNorm> add_layers();  // returns the norm
  Tensor encode(const Tensor& x, const TransformerMasks& masks);
};

// Masks of a decoder, as in MultiheadAttention. T and S are the numbers of positions of tgt and memory.
struct TransformerDecoderMasks {
  Tensor tgt_mask = {};                 // [T,T] or [N*nhead,T,T]
  Tensor memory_mask = {};              // [T,S] or [N*nhead,T,S]
  Tensor tgt_key_padding_mask = {};     // [N,T], or [T] without a batch
  Tensor memory_key_padding_mask = {};  // [N,S], or [S] without a batch
  bool tgt_causal = false;              // excludes positions of tgt after the query's
  bool memory_causal = false;           // excludes positions of memory after the query's
};

// Self-attention, attention to `memory` (the result of an encoder), then a feed-forward network. Each of these
// three blocks has dropout, a residual connection and a layer norm, as in TransformerEncoderLayer.
// Shapes: tgt [T,N,d_model], memory [S,N,d_model] -> [T,N,d_model]; with batch_first [N,T,d_model] and
// [N,S,d_model]; without a batch [T,d_model] and [S,d_model].
// Errors of the constructor: as TransformerEncoderLayer.
// Source: Vaswani et al., "Attention is all you need", 2017.
class TransformerDecoderLayer final : public ModuleWith<TransformerDecoderLayerOptions> {
 public:
  using ModuleWith::ModuleWith;

  MultiheadAttention self_attn{this, "self_attn", internal::attention_options(options())};
  MultiheadAttention multihead_attn{this, "multihead_attn", internal::attention_options(options())};
  Linear linear1{this, "linear1", internal::linear1_options("TransformerDecoderLayer", options())};
  Dropout dropout{this, "dropout", {.p = options().dropout}};
  Linear linear2{this, "linear2", internal::linear2_options(options())};
  LayerNorm norm1{this, "norm1", internal::norm_options(options())};
  LayerNorm norm2{this, "norm2", internal::norm_options(options())};
  LayerNorm norm3{this, "norm3", internal::norm_options(options())};
  Dropout dropout1{this, "dropout1", {.p = options().dropout}};
  Dropout dropout2{this, "dropout2", {.p = options().dropout}};
  Dropout dropout3{this, "dropout3", {.p = options().dropout}};

  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks = {});
};

extern template class Container<TransformerDecoderLayer>;

struct TransformerDecoderOptions {
  TransformerDecoderLayerOptions layer;
  Required<int64_t, "num_layers"> num_layers;
  bool norm = false;  // normalizes the result
};
extern template class ModuleWith<TransformerDecoderOptions>;

// A stack of decoder layers, each with its own random initial weights.
// Shapes, errors: as TransformerDecoderLayer; also ValueError for num_layers < 1.
class TransformerDecoder final : public ModuleWith<TransformerDecoderOptions> {
 public:
  using ModuleWith::ModuleWith;

  ModuleList<TransformerDecoderLayer> layers{this, "layers"};
  std::unique_ptr<LayerNorm> norm = add_layers();  // null unless options().norm

  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderMasks& masks = {});

 private:
  std::unique_ptr<LayerNorm> add_layers();  // returns the norm
};

struct TransformerOptions {
  int64_t d_model = 512;
  int64_t nhead = 8;
  int64_t num_encoder_layers = 6, num_decoder_layers = 6;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = TransformerActivation::kReLU;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
};
extern template class ModuleWith<TransformerOptions>;

// Masks of an encoder and a decoder. S and T are the numbers of positions of src and tgt.
struct TransformerCallOptions {
  Tensor src_mask = {};                 // [S,S] or [N*nhead,S,S]
  Tensor tgt_mask = {};                 // [T,T] or [N*nhead,T,T]
  Tensor memory_mask = {};              // [T,S] or [N*nhead,T,S]
  Tensor src_key_padding_mask = {};     // [N,S], or [S] without a batch
  Tensor tgt_key_padding_mask = {};     // [N,T], or [T]
  Tensor memory_key_padding_mask = {};  // [N,S], or [S]
  bool src_causal = false, tgt_causal = false, memory_causal = false;
};

// An encoder and a decoder, both with a norm of their result: decoder(tgt, encoder(src)). Initial weights of two
// and more dims are Xavier-uniform.
// Shapes: src [S,N,d_model], tgt [T,N,d_model] -> [T,N,d_model], or as in TransformerDecoderLayer.
// Errors: as TransformerEncoder and TransformerDecoder.
class Transformer final : public ModuleWith<TransformerOptions> {
 public:
  Transformer(Module* parent, std::string name, Options options = {});
  explicit Transformer(Options options = {});

  TransformerEncoder encoder{this, "encoder", {layer_options(), options().num_encoder_layers, true}};
  TransformerDecoder decoder{this, "decoder", {layer_options(), options().num_decoder_layers, true}};

  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerCallOptions& masks = {});

  // Returns the mask [size,size] to be added to scores: -infinity above the diagonal, 0 elsewhere.
  // Errors: ShapeError for size < 0; ValueError unless floating.
  static Tensor generate_square_subsequent_mask(int64_t size, const TensorOptions& options = {});

 private:
  TransformerEncoderLayerOptions layer_options() const;
  void reset_parameters();
};

}  // namespace gradus::nn
