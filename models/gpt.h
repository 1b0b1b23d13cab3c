// GPT: a decoder-only transformer, which predicts at each position the next token from the tokens up to that
// position.
//
//   models::GPT net({.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128});
//   Tensor logits = net(tokens);  // i64[N,T] -> [N,T,65]
//   Tensor loss = nn::cross_entropy(flatten(logits, 0, 1), flatten(next_tokens));
//
// Parameters have GPT-2's names ("h.0.attn.c_attn.weight"). Matrices are [out,in], as in nanoGPT.
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
// the MLP has a hidden layer of 4 * width with GELU; logits = layer_norm(x) wte^T (tied weights). Initial
// weights are normal with standard deviation 0.02, those of c_proj with 0.02 / sqrt(2 layers); initial biases
// are 0.
// Shapes: x i64[N,T], 1 <= T <= context -> [N,T,vocabulary].
// Source: Radford et al., "Language models are unsupervised multitask learners", 2019; Karpathy, nanoGPT.
class GPT final : public nn::LayerWith<GPTOptions> {
 public:
  // Errors: ValueError for options out of range.
  explicit GPT(Options options = {}) : LayerWith(checked(options)) { build(); }
  GPT(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), checked(options)) {
    build();
  }

  nn::Embedding wte{this, "wte", {.num_embeddings = options().vocabulary, .embedding_dim = options().width}};
  nn::Embedding wpe{this, "wpe", {.num_embeddings = options().context, .embedding_dim = options().width}};
  nn::Dropout drop{this, "drop", {.p = options().dropout}};
  nn::ModuleList<> h{this, "h"};
  nn::LayerNorm ln_f{this, "ln_f", {.shape = options().width, .bias = options().bias}};

  // Errors: ShapeError unless x is [N,T] with 1 <= T <= context.
  Tensor forward(const Tensor& x) override;

 private:
  static Options checked(const Options& o);
  void build();
};

}  // namespace gradus::models
