// Parameters by name, to attach some and freeze others; modules added to a model after to(dtype); explain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Block : nn::Layer {
  Block(Module* parent, std::string name) : Layer(parent, std::move(name)) {}
  nn::Linear fc{this, "fc", {.in = 4, .out = 4}};
  nn::BatchNorm1d norm{this, "norm", {.features = 4}};
  Tensor forward(const Tensor& x) override { return x + relu(norm(fc(x))); }
};
struct Net : nn::Layer {
  Block layer1{this, "layer1"}, layer10{this, "layer10"};
  nn::Linear out{this, "out", {.in = 4, .out = 2}};
  std::unique_ptr<Block> grown;
  void grow() { grown = std::make_unique<Block>(this, "grown"); }
  Tensor forward(const Tensor& x) override {
    const Tensor h = layer10(layer1(x));
    return out(grown ? (*grown)(h) : h);
  }
};

TEST(ParametersByName, AreFound) {
  Net net;
  EXPECT_TRUE(net.parameter("layer1.fc.weight").is_same(net.layer1.fc.weight));
  EXPECT_TRUE(net.layer10.parameter("norm.bias").is_same(net.layer10.norm.bias));
  EXPECT_TRUE(net.buffer("layer1.norm.running_var").is_same(net.layer1.norm.running_var));
  EXPECT_ERROR(ValueError, net.parameter("layer2.fc.weight"), "no 'layer2.fc.weight'", "layer1.fc.weight");
  EXPECT_ERROR(ValueError, net.parameter("layer1.norm.running_var"), "there are");
  EXPECT_THROW(net.buffer("layer1.fc.weight"), ValueError);

  const nn::StateDict state = net.state_dict();
  EXPECT_TRUE(state.at("out.bias").is_same(net.out.bias));
  EXPECT_TRUE(state.contains("out.bias"));
  EXPECT_FALSE(state.contains("out"));
  EXPECT_ERROR(ValueError, state.at("out"), "'out'", "out.weight");
  EXPECT_EQ(state.at(0).first, "layer1.fc.weight");
}

TEST(ParametersByName, SomeAreAttachedAndOthersFrozen) {
  manual_seed(1);
  Net net;
  const auto names = [&](const nn::ParameterOptions& options) {
    std::vector<std::string> all;
    for (const auto& [name, p] : net.named_parameters(options)) all.push_back(name);
    return all;
  };
  EXPECT_EQ(names({.only = {"layer1.fc", "out.bias"}}),
            (std::vector<std::string>{"layer1.fc.weight", "layer1.fc.bias", "out.bias"}));
  EXPECT_EQ(names({.only = {"out"}, .except = {"out.bias"}}), (std::vector<std::string>{"out.weight"}));
  EXPECT_EQ(names({}).size(), 10u);
  EXPECT_ERROR(ValueError, net.parameters({.except = {"layer2"}}), "'layer2'", "layer1.fc.weight");

  const std::vector<Tensor> rest = net.parameters({.except = {"layer10"}});  // not layer1, which begins alike
  EXPECT_EQ(rest.size(), 6u);
  GradManager gm;
  gm.attach(rest);
  optim::SGD opt(rest, {.lr = 0.1, .weight_decay = 0.1});
  const auto values = [&](const char* name) { return net.parameter(name).to_vector<float>(); };
  const auto frozen = values("layer10.fc.weight"), in_front = values("layer1.fc.weight");
  auto recording = gm.record();
  gm.backward(sum(square(net(randn({8, 4})))));
  opt.step();
  EXPECT_EQ(values("layer10.fc.weight"), frozen);
  EXPECT_NE(values("layer1.fc.weight"), in_front);
}

TEST(ConvertedModels, ConvertWhatComesLater) {
  manual_seed(1);
  Net net;
  GradManager gm;
  gm.attach(net.parameters());
  optim::Adam opt(net.parameters(), {.lr = 0.01});
  optim::AveragedModel average(net, {.decay = 0.5});
  const auto step = [&](DType dtype) {
    const auto recording = gm.record();
    gm.backward(sum(square(net(randn({8, 4}, {.dtype = dtype})))));
    opt.step().clear_grad();
    average.update_parameters();
  };
  step(DType::kF32);
  net.to(DType::kF64);
  net.grow();
  for (const auto& [name, p] : net.named_parameters()) EXPECT_EQ(p.dtype(), DType::kF64) << name;
  EXPECT_EQ(net.buffer("grown.norm.running_mean").dtype(), DType::kF64);
  EXPECT_EQ(net.buffer("grown.norm.num_batches_tracked").dtype(), DType::kI64);
  gm.attach(net.grown->parameters());
  opt.add_param_group(net.grown->parameters(), {.lr = 0.01});
  step(DType::kF64);
  for (const auto& [name, x] : opt.state_dict().tensors) EXPECT_EQ(x.dtype(), DType::kF64) << name;
  for (const auto& [name, x] : average.state_dict().tensors)
    EXPECT_EQ(is_floating(x.dtype()), x.dtype() == DType::kF64) << name;
  step(DType::kF64);
  net.grown->to(DType::kF32);  // the nearest parent decides
  nn::Linear more(net.grown.get(), "more", {.in = 1, .out = 1});
  EXPECT_EQ(more.weight.dtype(), DType::kF32);
}

// After conversion to f64 in mid-training, parameters agree with those of a model in f64 from the start.
TEST(ConvertedModels, GoOnWithTheOptimizersState) {
  const auto trained = [](bool convert) {
    manual_seed(3);
    nn::Linear net({.in = 3, .out = 1});
    if (!convert) net.to(DType::kF64);
    GradManager gm;
    gm.attach(net.parameters());
    optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 4; ++i) {
      if (i == 2) net.to(DType::kF64);
      const auto recording = gm.record();
      gm.backward(sum(square(net(to(reshape(arange(6), {2, 3}), net.weight.dtype())))) * 0.01);
      opt.step().clear_grad();
    }
    return net.weight.to_vector<double>();
  };
  const auto a = trained(true), b = trained(false);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);  // two steps in f32
}

TEST(GradOfATensorThatNobodyFollowed, IsAnErrorAtTheCall) {
  const Tensor x = ones({2}), other = ones({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = sum(x * other);
  EXPECT_ERROR(StateError, autograd::grad(y, {x, other}), "x 1 of 2", "attach");
  EXPECT_EQ(autograd::grad(y, {x})[0].to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(Explain, HasTheParametersNames) {
  Net net;
  const Tensor x = randn({8, 4});
  GradManager gm;
  gm.attach(x);
  gm.attach(net.parameters());
  auto recording = gm.record();
  const std::string text = nn::explain(sum(net(x)), net);
  EXPECT_THAT(text, AllOf(HasSubstr("layer10.fc.weight f32[4,4]"), HasSubstr("out.bias"),
                          HasSubstr("tensor 0 f32[8,4]")));
}

}  // namespace
}  // namespace gradus
