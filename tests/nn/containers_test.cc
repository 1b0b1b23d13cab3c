// ModuleList, ModuleDict, ParameterList and Sequential: names, indexing, iteration; and the
// fusion of a batch norm or convolution with the activation behind it against the layers one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const nn::Module& m) {
  std::vector<std::string> all;
  for (const auto& [name, t] : m.state_dict()) all.push_back(name);
  return all;
}

struct Block final : nn::Layer {
  Block(nn::Module* parent, std::string name, int64_t width)
      : Layer(parent, std::move(name)), fc(this, "fc", {.in = width, .out = width, .bias = false}) {}
  nn::Linear fc;
  Tensor forward(const Tensor& x) override { return fc(x); }
};

struct Net final : nn::Module {
  nn::ModuleList<> layers{this, "layers"};
  nn::ModuleList<Block> blocks{this, "blocks"};
  nn::ModuleDict<nn::Module> cells{this, "cells"};
  nn::ParameterList scales{this, "scales"};
  nn::ParameterDict shifts{this, "shifts"};
  Net() {
    layers.add<nn::Linear>({.in = 2, .out = 3, .bias = false});
    layers.add<nn::ReLU>();
    blocks.add(3);
    blocks.add(3);
    cells.add<nn::GRUCell>("gru", {.input_size = 1, .hidden_size = 1, .bias = false});
    scales.add(ones({2}));
    shifts.add("left", ones({3}));
    shifts.add("right", zeros({1}));
  }
};

TEST(Containers, NameWhatTheyHoldAsTorchDoes) {
  Net net;
  EXPECT_THAT(names(net), ElementsAre("layers.0.weight", "blocks.0.fc.weight", "blocks.1.fc.weight",
                                      "cells.gru.weight_ih", "cells.gru.weight_hh", "scales.0", "shifts.left",
                                      "shifts.right"));
  EXPECT_THAT(to_string(net), HasSubstr("(blocks): ModuleList("));
  EXPECT_THAT(to_string(net), HasSubstr("(cells): ModuleDict("));
}

TEST(Containers, AreIndexedAndIterated) {
  Net net;
  Tensor h = ones({4, 2});
  for (auto& layer : net.layers) h = layer(h);
  EXPECT_EQ(h.shape(), (Shape{4, 3}));
  EXPECT_EQ(net.blocks[1](h).shape(), (Shape{4, 3}));
  EXPECT_EQ(net.blocks[1].path(), "blocks.1");
  size_t i = 0;
  for (Block& block : net.blocks) EXPECT_EQ(&block, &net.blocks[i++]);
  for (nn::Module& cell : net.cells) EXPECT_EQ(&cell, &net.cells["gru"]);
  for (nn::Parameter& scale : net.scales) EXPECT_EQ(&scale, &net.scales[0]);
  EXPECT_THROW(net.blocks[2], IndexError);
  EXPECT_TRUE(net.cells.contains("gru"));
  EXPECT_FALSE(net.cells.contains("lstm"));
  EXPECT_THAT(net.cells.keys(), ElementsAre("gru"));
  EXPECT_EQ(net.cells["gru"].name(), "gru");
  EXPECT_THROW(net.cells["lstm"], IndexError);
  EXPECT_THROW(net.cells.add<nn::Identity>("gru"), ValueError);
  EXPECT_EQ(net.scales[0].shape(), (Shape{2}));
  EXPECT_THROW(net.scales[1], IndexError);
  EXPECT_EQ(net.shifts["left"].shape(), (Shape{3}));
  EXPECT_EQ(net.shifts.size(), 2u);
  EXPECT_THAT(net.shifts.keys(), ElementsAre("left", "right"));
  for (nn::Parameter& shift : net.shifts) EXPECT_TRUE(shift.defined());
  EXPECT_TRUE(net.shifts.contains("right"));
  EXPECT_FALSE(net.shifts.contains("up"));
  EXPECT_THROW(net.shifts["up"], IndexError);
  EXPECT_THROW(net.shifts.add("left", ones({1})), ValueError);
  EXPECT_THROW(net.shifts.add("a.b", ones({1})), ValueError);
  EXPECT_EQ(net.shifts.size(), 2u);
}

TEST(Sequential, TakesNamesToo) {
  nn::Sequential net;
  net.add("fc", nn::layer<nn::Linear>({.in = 2, .out = 3, .bias = false}));
  net.add("act", nn::layer<nn::Tanh>());
  net.add<nn::Linear>({.in = 3, .out = 1, .bias = false});
  EXPECT_THAT(names(net), ElementsAre("fc.weight", "2.weight"));
  EXPECT_EQ(net["act"].type_name(), "Tanh");
  std::vector<std::string> iterated, applied;
  for (nn::Layer& layer : net) iterated.push_back(layer.type_name());
  net.apply([&](nn::Module& m) { applied.push_back(m.type_name()); });
  EXPECT_THAT(iterated, ElementsAre("Linear", "Tanh", "Linear"));
  EXPECT_THAT(applied, ElementsAre("Linear", "Tanh", "Linear", "Sequential"));
  EXPECT_EQ(net(ones({5, 2})).shape(), (Shape{5, 1}));
  EXPECT_THROW(net["none"], IndexError);
  EXPECT_THROW(net.add("fc", nn::layer<nn::Tanh>()), ValueError);
}

// Convolution, batch norm, activation, convolution.
nn::Sequential rectified_net(const nn::LayerFactory& rectifier) {
  return nn::Sequential({nn::layer<nn::Conv2d>({.in = 2, .out = 3, .kernel = 3}),
                         nn::layer<nn::BatchNorm2d>({.features = 3}), rectifier,
                         nn::layer<nn::Conv2d>({.in = 3, .out = 2, .kernel = 3})});
}
Tensor one_by_one(nn::Sequential& net, const Tensor& x) {
  Tensor h = x;
  for (size_t i = 0; i < net.size(); ++i) h = net[i](h);
  return h;
}
std::vector<nn::LayerFactory> rectifiers() {
  std::vector<nn::LayerFactory> all{nn::layer<nn::ReLU>(), nn::layer<nn::Tanh>()};
  for (const double slope : {0.2, -0.5, 0., 1.})
    all.push_back(nn::layer<nn::LeakyReLU>({.negative_slope = slope}));
  return all;
}

// Results, gradients and state equal those of the layers called one by one. hooked: the layer that has a
// forward hook, which prevents the fusion; -1: none.
TEST(Sequential, RectifiesABatchNormInOnePass) {
  for (const nn::LayerFactory& rectifier : rectifiers())
    for (bool training : {true, false})
      for (int hooked : {-1, 1, 2}) {
        const Tensor start = randn({4, 2, 6, 6});
        int seen = 0;
        const auto run = [&](bool whole) {
          manual_seed(1);
          nn::Sequential net = rectified_net(rectifier);
          net.train(training);
          if (hooked >= 0)
            net[size_t(hooked)].register_forward_hook(
                [&](nn::Layer&, const Tensor&, const Tensor&) { ++seen; });
          GradManager gm;
          Tensor x = raw::clone(start);
          gm.attach(x), gm.attach(net.parameters());
          auto recording = gm.record();
          const Tensor y = whole ? net(x) : one_by_one(net, x);
          gm.backward(sum(square(y)));
          std::vector<std::vector<double>> all{y.to_vector<double>(), x.grad().to_vector<double>()};
          for (const Tensor& p : net.parameters()) all.push_back(p.grad().to_vector<double>());
          for (const Tensor& b : net.buffers()) all.push_back(b.to_vector<double>());
          return all;
        };
        const auto whole = run(true), apart = run(false);
        EXPECT_EQ(whole, apart) << training << ' ' << hooked;
        EXPECT_EQ(seen, hooked < 0 ? 0 : 2);
      }
}

// As above for a convolution; padding that is not zeros prevents the fusion too.
TEST(Sequential, RectifiesAConvolutionInOnePass) {
  const Tensor start = randn({4, 2, 6, 6});
  for (const bool bias : {true, false})
    for (const auto mode : {nn::PaddingMode::kZeros, nn::PaddingMode::kReflect})
      for (int hooked : {-1, 0, 1}) {
        int seen = 0;
        const auto run = [&](bool whole) {
          manual_seed(1);
          nn::Sequential net(
              {nn::layer<nn::Conv2d>(
                   {.in = 2, .out = 3, .kernel = 3, .padding = 1, .bias = bias, .padding_mode = mode}),
               nn::layer<nn::ReLU>(), nn::layer<nn::Conv2d>({.in = 3, .out = 2, .kernel = 3})});
          if (hooked >= 0)
            net[size_t(hooked)].register_forward_hook(
                [&](nn::Layer&, const Tensor&, const Tensor&) { ++seen; });
          const bool fused = hooked < 0 && mode == nn::PaddingMode::kZeros;
          if (whole)  // errors name the op that runs
            EXPECT_ERROR(ShapeError, net(zeros({4, 3, 6, 6})), fused ? "[conv2d_relu]" : "[conv2d]");
          GradManager gm;
          Tensor x = raw::clone(start);
          gm.attach(x), gm.attach(net.parameters());
          auto recording = gm.record();
          const Tensor y = whole ? net(x) : one_by_one(net, x);
          gm.backward(sum(square(y)));
          std::vector<std::vector<double>> all{y.to_vector<double>(), x.grad().to_vector<double>()};
          for (const Tensor& p : net.parameters()) all.push_back(p.grad().to_vector<double>());
          return all;
        };
        EXPECT_EQ(run(true), run(false)) << bias << ' ' << hooked;
        EXPECT_EQ(seen, hooked < 0 ? 0 : 2);
      }
}

// In bf16 the fused pass rounds once and two ops round twice, which tells them apart.
TEST(Sequential, TakesOnePassAsSoonAsNoHookIsLeft) {
  const Tensor x = to(randn({8, 3, 9, 9}), DType::kBF16);
  const auto once = batch_norm_leaky_relu(x, 0.2, {}, {}, {}, {}, {.training = true}).to_vector<float>();
  for (size_t hooked : {0, 1}) {
    nn::Sequential net(
        {nn::layer<nn::BatchNorm2d>({.features = 3}), nn::layer<nn::LeakyReLU>({.negative_slope = 0.2})});
    nn::HookHandle hook = net[hooked].register_forward_hook([](nn::Layer&, const Tensor&, const Tensor&) {});
    EXPECT_NE(net(x).to_vector<float>(), once) << hooked;
    hook.remove();
    EXPECT_EQ(net(x).to_vector<float>(), once) << hooked;
    EXPECT_EQ(net(to(x, DType::kBF16)).to_vector<float>(), once) << "a temporary";
    net.add<nn::Identity>();
    EXPECT_EQ(checkpoint_sequential(net, 1, x).to_vector<float>(), once);
    EXPECT_NE(checkpoint_sequential(net, 3, x).to_vector<float>(), once) << "a segment ends between the two";
  }
}

// A convolution gives the batch norm bf16: its unit roundoff is 2^-8. One pass rounds once, two round twice.
TEST(Sequential, RectifiesABatchNormUnderAutocast) {
  for (const nn::LayerFactory& rectifier : rectifiers()) {
    nn::Sequential net({nn::layer<nn::Conv2d>({.in = 2, .out = 3, .kernel = 3}),
                        nn::layer<nn::BatchNorm2d>({.features = 3}), rectifier});
    const Tensor x = randn({4, 2, 6, 6});
    const auto amp = autocast(DType::kBF16);
    const Tensor whole = net(x), apart = one_by_one(net, x);
    ASSERT_EQ(whole.dtype(), apart.dtype());
    const auto a = whole.to_vector<double>(), b = apart.to_vector<double>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 3.1 * 0x1p-8 * std::abs(b[i])) << i;
  }
}

}  // namespace
}  // namespace gradus
