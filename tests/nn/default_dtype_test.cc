// The default dtype: tensors made without a dtype get it, and nothing else changes.
#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {
namespace {

// Sets the default dtype while alive.
struct DefaultDtype {
  explicit DefaultDtype(DType t) { set_default_dtype(t); }
  ~DefaultDtype() { set_default_dtype(DType::kF32); }
};

struct Net : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 3, .out = 8, .kernel = 3}};
  nn::BatchNorm2d norm{this, "norm", {.features = 8}};
  nn::PReLU prelu{this, "prelu"};
  nn::LayerNorm layer_norm{this, "layer_norm", {.shape = 8}};
  nn::Linear last{this, "last", {.in = 8, .out = 4}};
  Tensor forward(const Tensor& x) override { return last(layer_norm(mean(prelu(norm(conv(x))), {2, 3}))); }
};

TEST(DefaultDtype, FactoriesAndModulesWithoutADtypeGetIt) {
  EXPECT_EQ(get_default_dtype(), DType::kF32);
  for (DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    const DefaultDtype scope(t);
    for (const Tensor& x :
         {empty({2}), zeros({2}), ones({2}), full({2}, 3), rand({2}), randn({2}), eye(2), scalar(1.5),
          linspace(0, 1, 3), arange(0, 1, 0.25), normal(0, 1, {2}), empty_channels_last({1, 2, 3, 3})})
      EXPECT_EQ(name_of(x.dtype()), name_of(t));
    for (const auto& [name, p] : Net().named_parameters()) EXPECT_EQ(name_of(p.dtype()), name_of(t)) << name;
    for (const auto& [name, b] : Net().named_buffers())
      if (is_floating(b.dtype())) {
        EXPECT_EQ(name_of(b.dtype()), name_of(t)) << name;
      }
  }
}

TEST(DefaultDtype, IntegersBecomeItWhereTheResultIsFractional) {
  const DefaultDtype scope(DType::kF64);
  const Tensor i = tensor({1, 2});
  EXPECT_EQ((i / 2).dtype(), DType::kF64);
  EXPECT_EQ(exp(i).dtype(), DType::kF64);
  EXPECT_EQ((i * 0.5).dtype(), DType::kF64);
  EXPECT_EQ((i * 2).dtype(), DType::kI64);
  EXPECT_EQ(tensor({1, 2.5}).dtype(), DType::kF64);
}

TEST(DefaultDtype, WhatHasADtypeKeepsIt) {
  const DefaultDtype scope(DType::kF64);
  EXPECT_EQ(zeros({2}, {DType::kF32}).dtype(), DType::kF32);
  EXPECT_EQ(tensor({1.f}).dtype(), DType::kF32);
  EXPECT_EQ((tensor({1.f}) * 0.5).dtype(), DType::kF32);
  EXPECT_EQ(zeros_like(tensor({1.f})).dtype(), DType::kF32);
  EXPECT_EQ(arange(3).dtype(), DType::kI64);
}

TEST(DefaultDtype, OnlyAFloatingPointDtypeCanBeIt) {
  EXPECT_THROW(set_default_dtype(DType::kI64), DTypeError);
  EXPECT_THROW(set_default_dtype(DType::kBool), DTypeError);
  EXPECT_EQ(get_default_dtype(), DType::kF32);
}

std::vector<double> losses_of(Net& net, const Tensor& x, const Tensor& target) {
  GradManager gm;
  gm.attach(net.parameters());
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(x), target);
    EXPECT_EQ(loss.dtype(), DType::kF64);
    gm.backward(loss);
    opt.step().clear_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(DefaultDtype, AModelMadeInF64TrainsAsOneConvertedToIt) {
  Net converted;
  converted.to(DType::kF64);
  const DefaultDtype scope(DType::kF64);
  manual_seed(1);
  Net made;
  converted.load_state_dict(made.state_dict());
  const Tensor x = randn({4, 3, 6, 6}), target = tensor({0, 1, 2, 3});
  EXPECT_EQ(losses_of(made, x, target), losses_of(converted, x, target));
  const auto a = made.state_dict(), b = converted.state_dict();
  for (const auto& [name, value] : a) EXPECT_TRUE(equal(value, b.at(name))) << name;
}

}  // namespace
}  // namespace gradus
