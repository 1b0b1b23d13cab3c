// GPT: a decoder-only transformer. At each position it predicts the next token from those up to there.
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
  int64_t context = 1024;  // the most tokens of a row
  int64_t layers = 12;     // blocks
  int64_t heads = 12;      // of attention
  int64_t width = 768;     // a multiple of the heads
  double dropout = 0.1;    // of embeddings, attention weights, and what blocks add
  bool bias = true;        // of linear layers and norms
};

// Adds embeddings of tokens and of positions. Then blocks add causal attention and a layer of four times the
// width with gelu, each to its normalized input. The token embedding also makes the logits. Weights start
// normal with deviation 0.02, where a block's parts end with 0.02 / sqrt(2 layers); biases at 0.
// Shapes: x i64[N,T], T from 1 to the context -> [N,T,vocabulary].
// Source: Radford et al., "Language models are unsupervised multitask learners", 2019; Karpathy, nanoGPT.
class GPT final : public nn::LayerWith<GPTOptions> {
 public:
  // Errors: ValueError for options outside of their domain.
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

  // Errors: ShapeError for more tokens than the context has.
  Tensor forward(const Tensor& x) override;

 private:
  static Options checked(const Options& o);
  void build();
};

}  // namespace gradus::models
