// MultiheadAttention: multi-head scaled dot-product attention as a module, as torch.nn.MultiheadAttention,
// with the same names and shapes of parameters.
#pragma once

#include "gradus/autograd/ops/linalg/attention.h"
#include "gradus/nn/layers/linear.h"

namespace gradus::nn {

using gradus::AttentionResult;

struct MultiheadAttentionOptions {
  Required<int64_t, "embed_dim"> embed_dim;
  Required<int64_t, "num_heads"> num_heads;
  double dropout = 0;  // dropout probability of the attention weights, in training
  bool bias = true;
  bool add_bias_kv = false;    // appends one learned key and value
  bool add_zero_attn = false;  // appends one key and value of zeros, so that a query can attend to nothing
  int64_t kdim = 0, vdim = 0;  // sizes of keys and values; 0: embed_dim
  bool batch_first = false;    // whether the batch is dim 0 of arguments and result, instead of dim 1
};
extern template class ModuleWith<MultiheadAttentionOptions>;

// Masks and results of one call. In a bool mask, true excludes a key (padding), or a pair of query and key. A
// floating-point mask is added to the scores.
struct AttentionCallOptions {
  Tensor key_padding_mask = {};      // [N,S], or [S] without a batch
  Tensor attn_mask = {};             // [L,S] or [N*num_heads,L,S]
  bool causal = false;               // excludes keys at positions after the query's
  bool need_weights = true;          // false: the result's weights are undefined
  bool average_attn_weights = true;  // averages the weights over the heads
};

// Projects queries, keys and values, splits them into num_heads heads of size embed_dim / num_heads, applies
// scaled_dot_product_attention per head, concatenates the heads, and projects the result. Initial values:
// projection weights Xavier-uniform, in_proj_bias and the bias of out_proj 0, the weight of out_proj as
// Linear's, bias_k and bias_v Xavier-normal.
// Shapes: query [L,N,embed_dim], key [S,N,kdim], value [S,N,vdim] -> output [L,N,embed_dim], weights [N,L,S]
// or, not averaged, [N,num_heads,L,S]. With batch_first N is the first dim. Without a batch there is no N. A
// query with all keys excluded gives NaN.
// Errors of the constructor: ValueError for sizes below 1 (kdim, vdim: 0), an embed_dim that num_heads does
// not divide, or a dropout outside of [0, 1].
// Source: Vaswani et al., "Attention is all you need", 2017.
class MultiheadAttention final : public ModuleWith<MultiheadAttentionOptions> {
 public:
  MultiheadAttention(Module* parent, std::string name, Options options)
      : ModuleWith(parent, std::move(name), options) {
    zero_biases();
  }
  explicit MultiheadAttention(Options options) : ModuleWith(options) { zero_biases(); }

  // Either in_proj_weight [3 E, E] (rows of query, key, value) if keys and values have size E = embed_dim, or
  // the three others [E, E], [E, kdim], [E, vdim]. in_proj_bias is [3 E]; bias_k and bias_v (add_bias_kv) are
  // [1, 1, E]. Parameters that the options do not use are undefined.
  Parameter in_proj_weight{this, "in_proj_weight", initial_projection(3, options().embed_dim, same_sizes())};
  Parameter q_proj_weight{this, "q_proj_weight", initial_projection(1, options().embed_dim, !same_sizes())};
  Parameter k_proj_weight{this, "k_proj_weight", initial_projection(1, options().kdim, !same_sizes())};
  Parameter v_proj_weight{this, "v_proj_weight", initial_projection(1, options().vdim, !same_sizes())};
  Parameter in_proj_bias{this, "in_proj_bias", initial_bias()};
  Parameter bias_k{this, "bias_k", initial_bias_kv()};
  Parameter bias_v{this, "bias_v", initial_bias_kv()};
  Linear out_proj{
      this, "out_proj", {.in = *options().embed_dim, .out = *options().embed_dim, .bias = options().bias}};

  // Differentiable. S of the weights includes the rows appended by add_bias_kv and add_zero_attn, which no
  // mask excludes. One product projects all three arguments if they are the same tensor.
  // Errors: ShapeError, DTypeError, DeviceError for arguments that do not fit.
  AttentionResult operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionCallOptions& options = {});

 private:
  bool same_sizes() const;
  Tensor initial_projection(int64_t rows, int64_t in, bool enabled) const;
  Tensor initial_bias() const;
  Tensor initial_bias_kv() const;
  void zero_biases();
  std::vector<Tensor> project(const Tensor& query, const Tensor& key, const Tensor& value) const;
  AttentionResult attend(const Tensor& query, const Tensor& key, const Tensor& value,
                         const AttentionCallOptions& o);
  std::string batch_first_hint() const;
  Tensor combined_mask(const AttentionCallOptions& o, int64_t n, int64_t l, int64_t s, DType dtype) const;
};

}  // namespace gradus::nn
