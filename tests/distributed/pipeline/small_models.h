// Small models that are hard to cut into pipeline stages: skip connections, tied weights, many tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"

namespace gradus {

// Makes a model with f64 parameters.
template <class M> std::unique_ptr<M> make_f64() {
  auto model = std::make_unique<M>();
  model->to(DType::kF64);
  return model;
}

// Returns the largest difference, relative to the largest element of `want`; infinity for NaN or other sizes.
inline double relative_difference(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return INFINITY;
  double largest = 1e-300, most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    const double off = std::abs(got[i] - want[i]);
    most = std::max(most, off >= 0 ? off : INFINITY);
  }
  return most / largest;
}

// Four residual blocks between two linear layers.
// Shapes: x [N,6] -> [N,3].
struct ResidualMLP : nn::Layer {
  struct Block : nn::Layer {
    using Layer::Layer;
    nn::Linear fc1{this, "fc1", {.in = 8, .out = 12}};
    nn::Linear fc2{this, "fc2", {.in = 12, .out = 8}};
    Tensor forward(const Tensor& x) override { return x + fc2(relu(fc1(x))); }
  };
  nn::Linear in{this, "in", {.in = 6, .out = 8}};
  Block b0{this, "b0"}, b1{this, "b1"}, b2{this, "b2"}, b3{this, "b3"};
  nn::Linear out{this, "out", {.in = 8, .out = 3}};
  Tensor forward(const Tensor& x) override { return out(b3(b2(b1(b0(tanh(in(x))))))); }
};

// Skips over one and over three modules.
// Shapes: x [N,2,8,8] -> [N,2,8,8].
struct UNet : nn::Layer {
  nn::Conv2d down0{this, "down0", {.in = 2, .out = 4, .kernel = 3, .padding = 1}};
  nn::Conv2d down1{this, "down1", {.in = 4, .out = 6, .kernel = 3, .stride = 2, .padding = 1}};
  nn::BatchNorm2d norm{this, "norm", {.features = 6}};
  nn::Conv2d middle{this, "middle", {.in = 6, .out = 6, .kernel = 3, .padding = 1}};
  nn::Dropout dropout{this, "dropout", {.p = 0.25}};
  nn::ConvTranspose2d up1{this, "up1", {.in = 12, .out = 4, .kernel = 2, .stride = 2}};
  nn::Conv2d up0{this, "up0", {.in = 8, .out = 2, .kernel = 1}};
  Tensor forward(const Tensor& x) override {
    const Tensor d0 = relu(down0(x));
    const Tensor d1 = relu(norm(down1(d0)));
    const Tensor m = dropout(relu(middle(d1)));
    const Tensor u1 = relu(up1(cat({m, d1}, 1)));
    return up0(cat({u1, d0}, 1));
  }
};

// A U-Net whose rows do not depend on each other: with group norms, and without dropout.
// Shapes: x [N,2,8,8] -> [N,2,8,8].
struct RowwiseUNet : nn::Layer {
  nn::Conv2d down0{this, "down0", {.in = 2, .out = 4, .kernel = 3, .padding = 1}};
  nn::Conv2d down1{this, "down1", {.in = 4, .out = 6, .kernel = 3, .stride = 2, .padding = 1}};
  nn::GroupNorm norm1{this, "norm1", {.groups = 2, .channels = 6}};
  nn::Conv2d middle{this, "middle", {.in = 6, .out = 6, .kernel = 3, .padding = 1}};
  nn::GroupNorm norm2{this, "norm2", {.groups = 3, .channels = 6}};
  nn::ConvTranspose2d up1{this, "up1", {.in = 12, .out = 4, .kernel = 2, .stride = 2}};
  nn::GroupNorm norm3{this, "norm3", {.groups = 2, .channels = 4}};
  nn::Conv2d up0{this, "up0", {.in = 8, .out = 2, .kernel = 1}};
  Tensor forward(const Tensor& x) override {
    const Tensor d0 = relu(down0(x));
    const Tensor d1 = relu(norm1(down1(d0)));
    const Tensor m = relu(norm2(middle(d1)));
    const Tensor u1 = relu(norm3(up1(cat({m, d1}, 1))));
    return up0(cat({u1, d0}, 1));
  }
};

// The embedding's weight is also that of the output layer. A mask, which has no gradient, crosses cuts.
// Shapes: x i64[N,T] -> [N,T,11].
struct TiedText : nn::Layer {
  struct Masked {
    Tensor x, padding;
  };
  struct Block : nn::Module {
    using Module::Module;
    nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
    nn::LayerNorm norm{this, "norm", {.shape = {6}}};
    Masked operator()(const Masked& in) {
      return call([&] { return Masked{where(in.padding, in.x, in.x + gelu(fc(norm(in.x)))), in.padding}; });
    }
  };
  struct Embed : nn::Module {
    using Module::Module;
    nn::Embedding tokens{this, "tokens", {.num_embeddings = 11, .embedding_dim = 6}};
    Masked operator()(const Tensor& x) {
      return call([&] { return Masked{tokens(x), unsqueeze(eq(x, 0), 2)}; });
    }
  };
  Embed embed{this, "embed"};
  Block b0{this, "b0"}, b1{this, "b1"}, b2{this, "b2"};
  nn::LayerNorm norm{this, "norm", {.shape = {6}}};
  Tensor forward(const Tensor& x) override {
    return linear(norm(b2(b1(b0(embed(x)))).x), embed.tokens.weight);
  }
};

}  // namespace gradus
