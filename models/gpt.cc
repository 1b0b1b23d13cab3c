// The layers, initial weights and forward pass of models::GPT, a GPT-2 language model: token and position
// embeddings, pre-norm blocks of causal self-attention and an MLP, and a layer norm before the output layer,
// which shares the weight of the token embedding. Parameters have GPT-2's names ("h.0.attn.c_attn.weight").
#include "gradus/models/gpt.h"

#include <cmath>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

// Causal multi-head self-attention, [N,T,width] -> [N,T,width]. c_attn computes queries, keys and values at once;
// c_proj projects the concatenated heads.
struct Attention final : nn::Layer {
  Attention(nn::Module* block, std::string name, const GPTOptions& o)
      : Layer(block, std::move(name)),
        c_attn{this, "c_attn", {.in = o.width, .out = 3 * o.width, .bias = o.bias}},
        c_proj{this, "c_proj", {.in = o.width, .out = o.width, .bias = o.bias}},
        resid_dropout{this, "resid_dropout", {.p = o.dropout}},
        heads(o.heads),
        dropout(o.dropout) {}

  Tensor forward(const Tensor& x) override {
    const int64_t n = x.size(0), t = x.size(1), width = x.size(2);
    const std::vector<Tensor> qkv = chunk(c_attn(x), 3, -1);
    const auto split_heads = [&](const Tensor& y) {
      return transpose(reshape(y, {n, t, heads, width / heads}), 1, 2);
    };
    const Tensor y =
        scaled_dot_product_attention(split_heads(qkv[0]), split_heads(qkv[1]), split_heads(qkv[2]),
                                     {.causal = true, .dropout = is_training() ? dropout : 0.0});
    return resid_dropout(c_proj(reshape(transpose(y, 1, 2), {n, t, width})));
  }

  nn::Linear c_attn, c_proj;
  nn::Dropout resid_dropout;
  int64_t heads;
  double dropout;
};

// The MLP of each position, [N,T,width] -> [N,T,width]: c_proj(gelu(c_fc(x))) with a hidden layer of 4 * width and
// the exact GELU (with erf), as in nanoGPT; the original GPT-2 has the tanh approximation.
struct MLP final : nn::Layer {
  MLP(nn::Module* block, std::string name, const GPTOptions& o)
      : Layer(block, std::move(name)),
        c_fc{this, "c_fc", {.in = o.width, .out = 4 * o.width, .bias = o.bias}},
        c_proj{this, "c_proj", {.in = 4 * o.width, .out = o.width, .bias = o.bias}},
        dropout{this, "dropout", {.p = o.dropout}} {}

  Tensor forward(const Tensor& x) override { return dropout(c_proj(gelu(c_fc(x)))); }
  nn::Linear c_fc, c_proj;
  nn::Dropout dropout;
};

// A transformer block with residual connections and layer norms before attention and MLP (pre-norm):
//   y = x + attn(ln_1(x)), block(x) = y + mlp(ln_2(y)).
struct Block final : nn::Layer {
  Block(nn::Module* blocks, std::string name, const GPTOptions& o)
      : Layer(blocks, std::move(name)),
        ln_1{this, "ln_1", {.shape = o.width, .bias = o.bias}},
        attn(this, "attn", o),
        ln_2{this, "ln_2", {.shape = o.width, .bias = o.bias}},
        mlp(this, "mlp", o) {}

  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attn(ln_1(x));
    return y + mlp(ln_2(y));
  }

  nn::LayerNorm ln_1;
  Attention attn;
  nn::LayerNorm ln_2;
  MLP mlp;
};

}  // namespace

GPTOptions GPT::checked(const Options& o) {
  for (const auto& [name, count] : {std::pair("vocabulary", o.vocabulary),
                                    {"context", o.context},
                                    {"layers", o.layers},
                                    {"heads", o.heads},
                                    {"width", o.width}})
    if (count < 1) throw ValueError("GPT", "expected ", name, " >= 1, got ", count);
  if (o.width % o.heads != 0)
    throw ValueError("GPT", "expected a width that is a multiple of the ", o.heads, " heads, got ", o.width);
  if (!(o.dropout >= 0 && o.dropout <= 1))
    throw ValueError("GPT", "expected dropout in [0, 1], got ", o.dropout);
  return o;
}

void GPT::build() {
  for (int64_t i = 0; i < options().layers; ++i) h.add<Block>(options());
  // Weight matrices, embeddings included, have a standard deviation of 0.02, biases are 0, and the weights of
  // layer norms keep their 1. The 2 * layers projections that are added to the residual path (c_proj) are scaled
  // by 1 / sqrt(2 * layers), as in GPT-2, so that the variance of the residual path does not grow with the layers.
  const double residual = 0.02 / std::sqrt(2 * double(options().layers));
  for (const auto& [name, p] : named_parameters())
    if (name.ends_with(".bias"))
      nn::init::zeros_(p);
    else if (p.dim() == 2)
      nn::init::normal_(p, {.stddev = name.ends_with("c_proj.weight") ? residual : 0.02});
}

Tensor GPT::forward(const Tensor& x) {
  if (x.dim() != 2 || x.size(1) < 1 || x.size(1) > options().context)
    throw ShapeError("GPT", "expected tokens [N,T] with T from 1 to the context of ", options().context,
                     ", got ", describe(x));
  const Tensor positions = arange(x.size(1), {DType::kI64, x.device()});
  Tensor y = drop(wte(x) + wpe(positions));
  for (auto& block : h) y = block(y);
  return linear(ln_f(y), wte.weight);  // logits [N,T,vocabulary]
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::GPTOptions, gradus::nn::Layer>;
