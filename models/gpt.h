// GPT: a decoder-only transformer, which predicts at each position the next token from the tokens up to that
// position.
//
//   models::GPT net({.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128});
//   Tensor logits = net(tokens);  // i64[N,T] -> [N,T,65]
//   Tensor loss = nn::cross_entropy(flatten(logits, 0, 1), flatten(next_tokens));
//
// Parameters have GPT-2's names ("h.0.attn.c_attn.weight"). Weights of linear layers are [out,in], as in nanoGPT.
//
//   Tensor text = net.generate(prompt, {.max_new_tokens = 100, .top_k = 10});  // i64[N,T] -> i64[N,T+100]
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

// The keys and values of tokens that a GPT has seen, so that it computes the tokens that follow alone. Copies share the
// tensors, so only one of them may be continued.
struct KeyValueCache {
  int64_t length = 0;                // tokens seen
  std::vector<Tensor> keys, values;  // of each block: [N,heads,context,width/heads]
};

// Causal multi-head self-attention, [N,T,width] -> [N,T,width]. c_attn computes queries, keys and values at once;
// c_proj projects the concatenated heads.
class GPTAttention final : public nn::Layer {
 public:
  GPTAttention(nn::Module* block, std::string name, const GPTOptions& o);

  nn::Linear c_attn, c_proj;
  nn::Dropout resid_dropout;

  Tensor forward(const Tensor& x) override;

 private:
  friend class GPTBlock;
  // The result for tokens x that follow those of the cache. Appends the keys and values of x to the ones of `block`.
  Tensor forward(const Tensor& x, KeyValueCache& cache, size_t block);
  std::vector<Tensor> queries_keys_values(const Tensor& x);  // each [N,heads,T,width/heads]
  Tensor attend(const std::vector<Tensor>& qkv, const Tensor& mask, bool causal);

  int64_t context_, heads_;
  double dropout_;
};

// The MLP of each position, [N,T,width] -> [N,T,width]: c_proj(gelu(c_fc(x))) with a hidden layer of 4 * width and
// the exact GELU (with erf), as in nanoGPT; the original GPT-2 has the tanh approximation.
class GPTMLP final : public nn::Layer {
 public:
  GPTMLP(nn::Module* block, std::string name, const GPTOptions& o);
  nn::Linear c_fc, c_proj;
  nn::Dropout dropout;
  Tensor forward(const Tensor& x) override;
};

// A transformer block with residual connections and layer norms before attention and MLP (pre-norm):
//   y = x + attn(ln_1(x)), block(x) = y + mlp(ln_2(y)).
class GPTBlock final : public nn::Layer {
 public:
  GPTBlock(nn::Module* blocks, std::string name, const GPTOptions& o);
  nn::LayerNorm ln_1;
  GPTAttention attn;
  nn::LayerNorm ln_2;
  GPTMLP mlp;
  Tensor forward(const Tensor& x) override;

 private:
  friend class GPT;
  Tensor forward(const Tensor& x, KeyValueCache& cache, size_t block);  // as GPTAttention's
};

struct GenerateOptions {
  Required<int64_t, "max_new_tokens"> max_new_tokens;
  double temperature = 1;  // divides the logits; 0: the most likely token
  int64_t top_k = 0;       // draws among the k most likely tokens; 0: among all
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
  nn::ModuleList<GPTBlock> h{this, "h"};
  nn::LayerNorm ln_f{this, "ln_f", {.shape = options().width, .bias = options().bias}};

  // Returns the logits of the tokens x.
  // Errors: ShapeError unless x is [N,T] with 1 <= T <= context; those of embedding, such as IndexError for a
  // token outside of [0, vocabulary).
  Tensor forward(const Tensor& x) override;
  // Returns the logits of x, which follows the tokens that `cache` has seen (a new one: none), and adds x to it.
  // Records nothing, and runs no hooks of the network, its blocks and their attention.
  // Errors: as above, where T is the number of all tokens; ShapeError, DTypeError or DeviceError if the cache has other
  // shapes, another dtype or device than this network's keys and values of x.
  Tensor forward(const Tensor& x, KeyValueCache& cache);

  // Returns the tokens x, [N,T], and max_new_tokens more, each drawn by the Context's generator from the softmax of the
  // logits of the last `context` tokens. Up to `context` tokens, each step computes one token (KeyValueCache); beyond,
  // positions shift, and each step computes `context` tokens. In training mode dropout acts: call eval() before.
  // Errors: as forward, but T may exceed the context; ValueError for max_new_tokens outside of [0, 2^40], a temperature
  // below 0 or not finite, or top_k outside of [0, vocabulary].
  Tensor generate(const Tensor& x, const GenerateOptions& options);

 private:
  Tensor embed(const Tensor& x, int64_t seen);
  Tensor hidden(const Tensor& x, KeyValueCache& cache);  // of x after the last block
  static Options checked(const Options& o);
  void build();
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::GPTOptions, gradus::nn::Layer>;
