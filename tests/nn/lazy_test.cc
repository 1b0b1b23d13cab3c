// Layers with a size of kLazy: their first call creates the parameters and buffers that a layer of the right size
// has; before it there are none to attach, count, load or save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using nn::kLazy;
using testing::HasSubstr;

// Expects a layer L with `lazy` options to become, in a call with x, the layer with the options `known`, and to give
// its result. Both layers draw the same random numbers.
template <class L> void expect_becomes(typename L::Options lazy, typename L::Options known, const Tensor& x) {
  manual_seed(3);
  L expected(known);
  const Tensor y = expected(x);
  L layer(lazy);
  SCOPED_TRACE(layer.type_name());
  EXPECT_FALSE(layer.is_initialized());
  EXPECT_THAT(layer.extra_repr(), HasSubstr("=lazy"));
  EXPECT_ERROR(StateError, layer.parameters(), "kLazy", "call");
  EXPECT_ERROR(StateError, layer.state_dict(), "kLazy");
  EXPECT_ERROR(ShapeError, layer(ones({})), "f32[]");
  manual_seed(3);
  EXPECT_EQ(layer(x).template to_vector<float>(), y.template to_vector<float>());
  EXPECT_TRUE(layer.is_initialized());
  EXPECT_EQ(layer.extra_repr(), expected.extra_repr());
  const nn::StateDict state = layer.state_dict(), want = expected.state_dict();
  ASSERT_EQ(state.size(), want.size());
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].first, want[i].first);
    EXPECT_EQ(state[i].second.to_vector<float>(), want[i].second.to_vector<float>()) << state[i].first;
  }
  EXPECT_EQ(layer(x).shape(), y.shape());
}

TEST(LazyLayers, BecomeLayersOfTheInputsSize) {
  const Tensor lines = randn({2, 4, 5}), images = randn({2, 4, 5, 6}), volumes = randn({2, 4, 3, 4, 5});
  expect_becomes<nn::Linear>({.in = kLazy, .out = 3}, {.in = 5, .out = 3}, lines);
  expect_becomes<nn::Linear>({.in = kLazy, .out = 3, .bias = false}, {.in = 5, .out = 3, .bias = false},
                             lines);
  expect_becomes<nn::Conv1d>({.in = kLazy, .out = 6, .kernel = 3, .groups = 2},
                             {.in = 4, .out = 6, .kernel = 3, .groups = 2}, lines);
  expect_becomes<nn::Conv2d>({.in = kLazy, .out = 2, .kernel = 3, .bias = false},
                             {.in = 4, .out = 2, .kernel = 3, .bias = false}, images);
  expect_becomes<nn::Conv2d>({.in = kLazy, .out = 2, .kernel = 3}, {.in = 4, .out = 2, .kernel = 3},
                             select(images, 0, 0));
  expect_becomes<nn::Conv3d>({.in = kLazy, .out = 2, .kernel = 2}, {.in = 4, .out = 2, .kernel = 2}, volumes);
  expect_becomes<nn::ConvTranspose1d>({.in = kLazy, .out = 2, .kernel = 3}, {.in = 4, .out = 2, .kernel = 3},
                                      lines);
  expect_becomes<nn::ConvTranspose2d>({.in = kLazy, .out = 6, .kernel = 2, .groups = 2},
                                      {.in = 4, .out = 6, .kernel = 2, .groups = 2}, images);
  expect_becomes<nn::ConvTranspose3d>({.in = kLazy, .out = 2, .kernel = 2}, {.in = 4, .out = 2, .kernel = 2},
                                      volumes);
  expect_becomes<nn::BatchNorm1d>({.features = kLazy}, {.features = 4}, select(lines, 2, 0));
  expect_becomes<nn::BatchNorm2d>({.features = kLazy}, {.features = 4}, images);
  expect_becomes<nn::BatchNorm3d>({.features = kLazy, .affine = false}, {.features = 4, .affine = false},
                                  volumes);
  expect_becomes<nn::InstanceNorm1d>({.features = kLazy, .affine = true}, {.features = 4, .affine = true},
                                     lines);
  expect_becomes<nn::InstanceNorm2d>({.features = kLazy, .affine = true, .track_running_stats = true},
                                     {.features = 4, .affine = true, .track_running_stats = true}, images);
  expect_becomes<nn::InstanceNorm3d>({.features = kLazy}, {.features = 4}, volumes);
}

struct Net final : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = kLazy, .out = 4, .kernel = 3}};
  nn::BatchNorm2d norm{this, "norm", {.features = kLazy}};
  nn::Linear fc{this, "fc", {.in = kLazy, .out = 2}};
  Tensor forward(const Tensor& x) override { return fc.relu(flatten(norm.relu(conv.relu(x)), 1)); }
};

TEST(LazyLayers, InANetworkNameThemselvesInErrors) {
  Net net;
  const std::vector<Tensor> none;
  EXPECT_FALSE(net.is_initialized());
  EXPECT_ERROR(StateError, net.parameters(), "Conv2d conv", "call the network once");
  EXPECT_ERROR(StateError, net.named_buffers(), "Conv2d conv");
  EXPECT_ERROR(StateError, net.num_parameters(), "Conv2d conv");
  EXPECT_ERROR(StateError, net.parameter("fc.weight"), "Conv2d conv");
  EXPECT_ERROR(StateError, net.load_state_dict({}), "Conv2d conv");
  EXPECT_ERROR(StateError, nn::ParameterScope(net, none), "Conv2d conv");
  EXPECT_ERROR(StateError, nn::ParameterScope(net, nn::StateDict()), "Conv2d conv");
  EXPECT_THAT(to_string(net), HasSubstr("Linear(in=lazy, out=2)"));
  EXPECT_THAT(to_string(net), HasSubstr("uninitialized"));
}

TEST(LazyLayers, TakeTheDTypeOfTheirNetworkAndCanBeTrained) {
  Net net;
  net.to(DType::kF64).eval();
  const Tensor x = randn({3, 1, 5, 5}, {.dtype = DType::kF64});
  EXPECT_EQ(net(x).shape(), (Shape{3, 2}));
  EXPECT_EQ(net.fc.weight.shape(), (Shape{2, 36}));
  EXPECT_EQ(net.fc.weight.dtype(), DType::kF64);
  EXPECT_EQ(net.norm.running_mean.dtype(), DType::kF64);
  EXPECT_FALSE(net.norm.is_training());
  GradManager gm;
  gm.attach(net.parameters());
  auto recording = gm.record();
  gm.backward(sum(net(x)));
  EXPECT_EQ(net.conv.weight.grad().shape(), net.conv.weight.shape());
  Net other;
  other(to(x, DType::kF32));
  nn::copy_state_(net, other);
}

TEST(LazyLayers, KeepWaitingAfterAnInputThatDoesNotFit) {
  nn::Conv2d conv({.in = kLazy, .out = 2, .kernel = 3, .groups = 2});
  EXPECT_THROW(conv(ones({1, 3, 4, 4})), ValueError);  // 2 does not divide 3
  EXPECT_FALSE(conv.is_initialized());
  EXPECT_EQ(conv(ones({1, 4, 4, 4})).shape(), (Shape{1, 2, 2, 2}));
}

}  // namespace
}  // namespace gradus
