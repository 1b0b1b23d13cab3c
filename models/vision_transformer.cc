// VisionTransformer: encoder blocks, initial values, and the named networks.
#include "gradus/models/vision_transformer.h"

#include <cmath>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

using Options = VisionTransformerOptions;
constexpr double kEps = 1e-6;  // of the layer norms

struct Block final : nn::Layer {
  Block(nn::Module* parent, std::string name, const Options& o)
      : Layer(parent, std::move(name)),
        ln_1{this, "ln_1", {.shape = o.hidden_dim, .eps = kEps}},
        self_attention{this,
                       "self_attention",
                       {.embed_dim = o.hidden_dim,
                        .num_heads = o.num_heads,
                        .dropout = o.attention_dropout,
                        .batch_first = true}},
        dropout{this, "dropout", {.p = o.dropout}},
        ln_2{this, "ln_2", {.shape = o.hidden_dim, .eps = kEps}},
        mlp{this,
            "mlp",
            {nn::layer<nn::Linear>({.in = o.hidden_dim, .out = o.mlp_dim}), nn::layer<nn::GELU>(),
             nn::layer<nn::Dropout>({.p = o.dropout}),
             nn::layer<nn::Linear>({.in = o.mlp_dim, .out = o.hidden_dim}),
             nn::layer<nn::Dropout>({.p = o.dropout})}} {
    for (const Tensor& p : mlp.parameters())
      p.dim() == 2 ? nn::init::xavier_uniform_(p) : nn::init::normal_(p, {.stddev = 1e-6});
  }

  Tensor forward(const Tensor& x) override {
    const Tensor h = ln_1(x);
    const Tensor y = dropout(self_attention(h, h, h, {.need_weights = false}).output) + x;
    return y + mlp(ln_2(y));
  }

  nn::LayerNorm ln_1;
  nn::MultiheadAttention self_attention;
  nn::Dropout dropout;
  nn::LayerNorm ln_2;
  nn::Sequential mlp;
};

// Position embeddings, blocks and a layer norm, [N,length,hidden_dim] -> the same.
struct Encoder final : nn::Layer {
  Encoder(nn::Module* parent, std::string name, const Options& o, const Tensor& pos_embedding)
      : Layer(parent, std::move(name)),
        pos_embedding{this, "pos_embedding", pos_embedding},
        dropout{this, "dropout", {.p = o.dropout}},
        layers{this, "layers"},
        ln{this, "ln", {.shape = o.hidden_dim, .eps = kEps}} {
    for (int64_t i = 0; i < o.num_layers; ++i)
      layers.add("encoder_layer_" + std::to_string(i), nn::layer<Block>(o));
  }
  Tensor forward(const Tensor& x) override { return ln(layers(dropout(x + pos_embedding))); }

  nn::Parameter pos_embedding;
  nn::Dropout dropout;
  nn::Sequential layers;
  nn::LayerNorm ln;
};

Options with(Options o, int64_t patch_size, int64_t num_layers, int64_t num_heads, int64_t hidden_dim) {
  o.patch_size = patch_size, o.num_layers = num_layers, o.num_heads = num_heads;
  o.hidden_dim = hidden_dim, o.mlp_dim = 4 * hidden_dim;
  return o;
}

}  // namespace

Options vit_b_16(Options o) { return with(o, 16, 12, 12, 768); }
Options vit_b_32(Options o) { return with(o, 32, 12, 12, 768); }
Options vit_l_16(Options o) { return with(o, 16, 24, 16, 1024); }
Options vit_l_32(Options o) { return with(o, 32, 24, 16, 1024); }
Options vit_h_14(Options o) { return with(o, 14, 32, 16, 1280); }

void VisionTransformer::build() {
  const Options& o = options();
  for (int64_t n :
       {o.image_size, o.patch_size, o.num_layers, o.num_heads, o.hidden_dim, o.mlp_dim, o.in, o.classes})
    if (n < 1 || n > 1 << 20) throw ValueError("VisionTransformer", "expected sizes from 1 to 2^20, got ", n);
  if (o.image_size % o.patch_size != 0)
    throw ValueError("VisionTransformer", "expected an image_size that is a multiple of the patch_size of ",
                     o.patch_size, ", got ", o.image_size);
  conv_proj_ = std::make_unique<nn::Conv2d>(
      this, "conv_proj",
      nn::Conv2dOptions{.in = o.in, .out = o.hidden_dim, .kernel = o.patch_size, .stride = o.patch_size});
  const Tensor& weight = conv_proj_->weight;
  nn::init::trunc_normal_(weight, {.stddev = 1 / std::sqrt(double(nn::init::fans(weight).in))});
  nn::init::zeros_(conv_proj_->bias);
  const int64_t patches = o.image_size / o.patch_size;
  const TensorOptions device{.device = weight.device()};
  class_token_ = std::make_unique<nn::Parameter>(this, "class_token", zeros({1, 1, o.hidden_dim}, device));
  encoder_ = std::make_unique<Encoder>(
      this, "encoder", o,
      nn::init::normal_(empty({1, patches * patches + 1, o.hidden_dim}, device), {.stddev = 0.02}));
  heads_ = std::make_unique<nn::Sequential>(this, "heads");
  heads_->add("head", nn::layer<nn::Linear>({.in = o.hidden_dim, .out = o.classes}));
  for (const Tensor& p : heads_->parameters()) nn::init::zeros_(p);
}

Tensor VisionTransformer::forward(const Tensor& x) {
  const Options& o = options();
  if (x.dim() != 4 || x.size(2) != o.image_size || x.size(3) != o.image_size)
    throw ShapeError("VisionTransformer", "expected images [N,", o.in, ",", o.image_size, ",", o.image_size,
                     "], got ", describe(x));
  const Tensor patches = transpose(flatten((*conv_proj_)(x), 2), 1, 2);  // [N,patches,hidden_dim]
  const Tensor tokens = cat({expand(*class_token_, {x.size(0), 1, o.hidden_dim}), patches}, 1);
  return (*heads_)(select((*encoder_)(tokens), 1, 0));
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::VisionTransformerOptions, gradus::nn::Layer>;
