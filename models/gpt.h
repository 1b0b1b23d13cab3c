// GPT: a decoder-only transformer, which predicts at each position the next token from the tokens up to that
// position.
//
//   models::GPT net({.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128});
//   Tensor logits = net(tokens);  // i64[N,T] -> [N,T,65]
//   Tensor loss = nn::cross_entropy(flatten(logits, 0, 1), flatten(next_tokens));
//
// Parameters have GPT-2's names ("h.0.attn.c_attn.weight"). Weights of linear layers are [out,in], as in nanoGPT.
#pragma once

#include "gradus/nn/nn.h"

namespace gradus::models {

// The defaults are GPT-2's smallest network: 124,439,808 parameters.
struct GPTOptions {
  int64_t vocabulary = 50257;
  int64_t context = 1024;  // maximum length of a sequence, in tokens
  int64_t layers = 12;     // number of blocks
  int64_t heads = 12;      // number of attention heads
  int64_t width = 768;     // size of the embeddings; a multiple of the heads
  double dropout = 0.1;    // dropout probability of embeddings, attention weights and residual branches
  bool bias = true;        // linear layers and layer norms have biases
};

// x = wte(tokens) + wpe(positions); each block: x += attention(layer_norm(x)), x += mlp(layer_norm(x)), where
// attention is causal and the MLP has a hidden layer of 4 * width with GELU; logits = layer_norm(x) wte^T (tied
// weights).
// Initial weights are normal with standard deviation 0.02. The output projections of attention and MLP (c_proj)
// have a standard deviation of 0.02 / sqrt(2 * layers). Layer norms start with weight 1; initial biases are 0.
// Shapes: tokens [N,T], i64 or i32, 1 <= T <= context -> logits [N,T,vocabulary].
// Source: Radford et al., "Language models are unsupervised multitask learners", 2019; Karpathy, nanoGPT.
class GPT final : public nn::LayerWith<GPTOptions> {
 public:
  // Errors: ValueError if a count is less than 1, the width is no multiple of the heads, or the dropout is
  // outside of [0, 1].
  explicit GPT(Options options = {}) : LayerWith(checked(options)) { build(); }
  GPT(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), checked(options)) {
    build();
  }

  // Token and position embeddings, blocks, final layer norm.
  nn::Embedding wte{this, "wte", {.num_embeddings = options().vocabulary, .embedding_dim = options().width}};
  nn::Embedding wpe{this, "wpe", {.num_embeddings = options().context, .embedding_dim = options().width}};
  nn::Dropout drop{this, "drop", {.p = options().dropout}};
  nn::ModuleList<> h{this, "h"};
  nn::LayerNorm ln_f{this, "ln_f", {.shape = options().width, .bias = options().bias}};

  // Returns the logits of the tokens x.
  // Errors: ShapeError unless x is [N,T] with 1 <= T <= context; those of embedding, such as IndexError for a
  // token outside of [0, vocabulary).
  Tensor forward(const Tensor& x) override;

 private:
  static Options checked(const Options& o);
  void build();
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::GPTOptions, gradus::nn::Layer>;
