// The layers, initial weights and forward pass of models::GPT, and how it writes text.
#include "gradus/models/gpt.h"

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/distributions.h"

namespace gradus::models {
GPTAttention::GPTAttention(nn::Module* block, std::string name, const GPTOptions& o)
    : Layer(block, std::move(name)),
      c_attn{this, "c_attn", {.in = o.width, .out = 3 * o.width, .bias = o.bias}},
      c_proj{this, "c_proj", {.in = o.width, .out = o.width, .bias = o.bias}},
      resid_dropout{this, "resid_dropout", {.p = o.dropout}},
      context_(o.context),
      heads_(o.heads),
      dropout_(o.dropout) {}

std::vector<Tensor> GPTAttention::queries_keys_values(const Tensor& x) {
  const int64_t n = x.size(0), t = x.size(1), width = x.size(2);
  std::vector<Tensor> qkv = chunk(c_attn(x), 3, -1);
  for (Tensor& y : qkv) y = transpose(reshape(y, {n, t, heads_, width / heads_}), 1, 2);
  return qkv;
}

Tensor GPTAttention::attend(const std::vector<Tensor>& qkv, const Tensor& mask, bool causal) {
  const Tensor y = transpose(scaled_dot_product_attention(
                                 qkv[0], qkv[1], qkv[2],
                                 {.mask = mask, .causal = causal, .dropout = is_training() ? dropout_ : 0.0}),
                             1, 2);
  return resid_dropout(c_proj(flatten(y, 2)));
}

Tensor GPTAttention::forward(const Tensor& x) { return attend(queries_keys_values(x), {}, true); }

Tensor GPTAttention::forward(const Tensor& x, KeyValueCache& cache, size_t block) {
  std::vector<Tensor> qkv = queries_keys_values(x);
  const int64_t seen = cache.length, t = x.size(1);
  const auto append = [&](Tensor& all, const Tensor& added) {
    Shape shape = added.shape();
    shape[2] = context_;
    if (seen == 0) all = zeros(shape, {added.dtype(), added.device()});
    constexpr const char* kExpected = "expected a cache of this network and batch, like ";
    const auto text = [&] { return concat(kExpected, describe(added), ", got ", describe(all)); };
    if (!all.defined() || all.shape() != shape) throw ShapeError("GPT", text());
    if (all.dtype() != added.dtype()) throw DTypeError("GPT", text());
    if (all.device() != added.device()) throw DeviceError("GPT", text());
    copy_(narrow(all, 2, seen, t), added);
    return narrow(all, 2, 0, seen + t);
  };
  qkv[1] = append(cache.keys[block], qkv[1]);
  qkv[2] = append(cache.values[block], qkv[2]);
  if (seen == 0 || t == 1) return attend(qkv, {}, seen == 0);
  const Tensor positions = arange(seen + t, {DType::kI64, x.device()});
  return attend(qkv, le(positions, unsqueeze(narrow(positions, 0, seen, t), 1)), false);
}

GPTMLP::GPTMLP(nn::Module* block, std::string name, const GPTOptions& o)
    : Layer(block, std::move(name)),
      c_fc{this, "c_fc", {.in = o.width, .out = 4 * o.width, .bias = o.bias}},
      c_proj{this, "c_proj", {.in = 4 * o.width, .out = o.width, .bias = o.bias}},
      dropout{this, "dropout", {.p = o.dropout}} {}

Tensor GPTMLP::forward(const Tensor& x) { return dropout(c_proj(gelu(c_fc(x)))); }

GPTBlock::GPTBlock(nn::Module* blocks, std::string name, const GPTOptions& o)
    : Layer(blocks, std::move(name)),
      ln_1{this, "ln_1", {.shape = o.width, .bias = o.bias}},
      attn(this, "attn", o),
      ln_2{this, "ln_2", {.shape = o.width, .bias = o.bias}},
      mlp(this, "mlp", o) {}

Tensor GPTBlock::forward(const Tensor& x) {
  const Tensor y = x + attn(ln_1(x));
  return y + mlp(ln_2(y));
}

Tensor GPTBlock::forward(const Tensor& x, KeyValueCache& cache, size_t block) {
  const Tensor y = x + attn.forward(ln_1(x), cache, block);
  return y + mlp(ln_2(y));
}

namespace {

// Draws a token of each row of logits [N,vocabulary].
Tensor draw(Tensor logits, const GenerateOptions& o) {
  if (o.temperature == 0) return argmax(logits, 1);
  logits = (logits - amax(logits, {1}, true)) / o.temperature;  // the greatest is 0, whatever the temperature
  if (o.top_k == 0) return distributions::Categorical({.logits = logits}).sample();
  const auto [best, tokens] = topk(logits, o.top_k);
  return flatten(gather(tokens, 1, unsqueeze(distributions::Categorical({.logits = best}).sample(), 1)));
}

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
  for (int64_t i = 0; i < options().layers; ++i) h.add(options());
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

// Token and position embeddings of tokens that follow `seen` others.
Tensor GPT::embed(const Tensor& x, int64_t seen) {
  if (x.dim() != 2 || x.size(1) < 1 || x.size(1) > options().context - seen)
    throw ShapeError("GPT", "expected tokens [N,T] with T from 1 to the context of ", options().context,
                     seen ? concat(" less the ", seen, " tokens of the cache") : "", ", got ", describe(x));
  return drop(wte(x) + wpe(arange(seen, seen + x.size(1), {DType::kI64, x.device()})));
}

Tensor GPT::forward(const Tensor& x) {
  Tensor y = embed(x, 0);
  for (GPTBlock& block : h) y = block(y);
  return linear(ln_f(y), wte.weight);  // logits [N,T,vocabulary]
}

Tensor GPT::hidden(const Tensor& x, KeyValueCache& cache) {
  const int64_t seen = cache.length;
  if (seen < 0 || seen > options().context)
    throw ShapeError("GPT", "expected a cache of 0 to ", options().context, " tokens, got ", seen);
  if (seen == 0) cache.keys = cache.values = std::vector<Tensor>(h.size());
  if (cache.keys.size() != h.size() || cache.values.size() != h.size())
    throw ShapeError("GPT", "expected a cache of ", h.size(), " blocks, got ", cache.keys.size());
  Tensor y = embed(x, seen);
  for (size_t i = 0; i < h.size(); ++i) y = h[i].forward(y, cache, i);
  cache.length += x.size(1);
  return y;
}

Tensor GPT::forward(const Tensor& x, KeyValueCache& cache) {
  const auto off = no_record();
  return linear(ln_f(hidden(x, cache)), wte.weight);
}

Tensor GPT::generate(const Tensor& x, const GenerateOptions& o) {
  const int64_t count = o.max_new_tokens, context = options().context;
  if (count < 0 || count > int64_t{1} << 40)
    throw ValueError("generate", "expected max_new_tokens from 0 to 2^40, got ", count);
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    throw ValueError("generate", "expected a finite temperature >= 0, got ", o.temperature);
  if (o.top_k < 0 || o.top_k > options().vocabulary)
    throw ValueError("generate", "expected top_k from 0 to the vocabulary of ", options().vocabulary,
                     ", got ", o.top_k);
  if (x.dim() != 2 || x.size(1) < 1)
    throw ShapeError("generate", "expected tokens [N,T] with T >= 1, got ", describe(x));
  const auto off = no_record();
  Tensor text = x;
  KeyValueCache cache;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = text.size(1);
    if (length > context) cache = {};  // positions shift
    const int64_t first = length > context ? length - context : cache.length;
    const Tensor last = select(hidden(narrow(text, 1, first, length - first), cache), 1, -1);
    const Tensor token = draw(linear(ln_f(last), wte.weight), o);
    text = cat({text, unsqueeze(to(token, text.dtype()), 1)}, 1);
  }
  return text;
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::GPTOptions, gradus::nn::Layer>;
