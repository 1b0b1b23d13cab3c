// Errors of common mistakes of users of PyTorch: each must name the mistake and the conversion or option that
// corrects it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A call that must throw, and a part of its error, mostly the op.
struct Call {
  const char* what;
  std::function<void()> run;
};

const Tensor kLabels = tensor({0.f, 1.f});

TEST(CommonErrors, FloatingPointNumbersAsClassNumbers) {
  const Tensor x = ones({2, 3});
  const std::vector<Call> calls = {
      {"cross_entropy", [&] { nn::cross_entropy(x, kLabels); }},
      {"nll_loss", [&] { nn::nll_loss(x, kLabels); }},
      {"multi_margin_loss", [&] { nn::multi_margin_loss(x, kLabels); }},
      {"cross_entropy",
       [] {
         nn::cross_entropy(ones({2, 3, 4, 4}), zeros({2, 4, 4}));
       }},
  };
  for (const Call& c : calls)
    EXPECT_THAT(
        error_of<DTypeError>(c.run),
        AllOf(HasSubstr(c.what), HasSubstr("expected class numbers of an integer dtype, got target f32[2"),
              HasSubstr("; to(target, DType::kI64) converts target")));
  EXPECT_ERROR(ShapeError, nn::cross_entropy(x, unsqueeze(kLabels, 1)),
               "expected class numbers i64[2] or probabilities f32[2,3]", "target f32[2,1]");
  // Class numbers are right, and so are probabilities.
  EXPECT_NO_THROW(nn::cross_entropy(x, to(kLabels, DType::kI64)));
  EXPECT_NO_THROW(nn::cross_entropy(x, softmax(x, 1)));
}

TEST(CommonErrors, FloatingPointNumbersAsIndices) {
  Tensor x = ones({2, 3});
  nn::Embedding embedding({.num_embeddings = 4, .embedding_dim = 2});
  const Tensor matrix = zeros({2, 3});
  const std::vector<Call> calls = {
      {"one_hot", [&] { one_hot(kLabels, 3); }},
      {"gather", [&] { gather(x, 1, matrix); }},
      {"scatter", [&] { scatter(x, 1, matrix, x); }},
      {"scatter_add", [&] { scatter_add(x, 1, matrix, x); }},
      {"index_select", [&] { index_select(x, 0, kLabels); }},
      {"take_along_dim", [&] { take_along_dim(x, matrix, 1); }},
      {"embedding", [&] { embedding(kLabels); }},
      {"index", [&] { Tensor y = x[kLabels]; }},
  };
  for (const Call& c : calls)
    EXPECT_THAT(error_of<DTypeError>(c.run), AllOf(HasSubstr("expected i64 or i32 indices, got index f32[2"),
                                                   HasSubstr("; to(index, DType::kI64) converts index")))
        << c.what;
  EXPECT_ERROR(DTypeError, bincount(kLabels),
               "expected numbers of an integer dtype, got x f32[2] cpu; to(x, DType::kI64) converts x");
}

TEST(CommonErrors, ClassNumbersWhereALossTakesFloatingPoint) {
  const Tensor x = rand({2}), target = to(kLabels, DType::kI64);
  const std::vector<Call> calls = {
      {"binary_cross_entropy", [&] { nn::binary_cross_entropy(x, target); }},
      {"binary_cross_entropy_with_logits", [&] { nn::binary_cross_entropy_with_logits(x, target); }},
      {"mse_loss", [&] { nn::mse_loss(x, target); }},
      {"l1_loss", [&] { nn::l1_loss(x, target); }},
  };
  for (const Call& c : calls)
    EXPECT_THAT(error_of<DTypeError>(c.run),
                AllOf(HasSubstr(c.what),
                      HasSubstr("expected floating point, got target i64[2] cpu; to(target, DType::kF32)")));
}

TEST(CommonErrors, WhatIsNoMask) {
  const Tensor x = ones({2}), mask = tensor({0, 1});
  for (const Call& c : std::vector<Call>{{"where", [&] { where(mask, x, x); }},
                                         {"masked_fill", [&] { masked_fill(x, mask, 0); }},
                                         {"masked_select", [&] { masked_select(x, mask); }}})
    EXPECT_THAT(error_of<DTypeError>(c.run), AllOf(HasSubstr(c.what), HasSubstr(", DType::kBool) converts")));
}

// A layer called with data of dtype `dtype`; its parameters are f32. `what`: the op that its error names.
template <class L, class O> Call layer(const char* what, O options, const Shape& shape, DType dtype) {
  return {what, [=] {
            L l(options);
            l(ones(shape, {.dtype = dtype}));
          }};
}

std::vector<Call> layers(DType t) {
  using namespace nn;
  return {
      layer<Linear>("linear", LinearOptions{.in = 3, .out = 2}, {2, 3}, t),
      layer<Conv1d>("conv1d", Conv1dOptions{.in = 3, .out = 2, .kernel = 1}, {1, 3, 4}, t),
      layer<Conv2d>("conv2d", Conv2dOptions{.in = 3, .out = 2, .kernel = 1}, {1, 3, 4, 4}, t),
      layer<Conv3d>("conv3d", Conv3dOptions{.in = 3, .out = 2, .kernel = 1}, {1, 3, 4, 4, 4}, t),
      layer<ConvTranspose1d>("conv_transpose1d", ConvTranspose1dOptions{.in = 3, .out = 2, .kernel = 1},
                             {1, 3, 4}, t),
      layer<ConvTranspose2d>("conv_transpose2d", ConvTranspose2dOptions{.in = 3, .out = 2, .kernel = 1},
                             {1, 3, 4, 4}, t),
      layer<ConvTranspose3d>("conv_transpose3d", ConvTranspose3dOptions{.in = 3, .out = 2, .kernel = 1},
                             {1, 3, 4, 4, 4}, t),
      layer<BatchNorm1d>("batch_norm", BatchNormOptions{.features = 3}, {4, 3}, t),
      layer<BatchNorm2d>("batch_norm", BatchNormOptions{.features = 3}, {4, 3, 2, 2}, t),
      layer<BatchNorm2d>("batch_norm", BatchNormOptions{.features = 3, .affine = false}, {4, 3, 2, 2}, t),
      layer<LayerNorm>("layer_norm", LayerNormOptions{.shape = 3}, {2, 3}, t),
      layer<RMSNorm>("rms_norm", RMSNormOptions{.shape = 3}, {2, 3}, t),
      layer<GroupNorm>("group_norm", GroupNormOptions{.groups = 1, .channels = 3}, {2, 3, 2}, t),
      layer<InstanceNorm2d>("instance_norm", InstanceNormOptions{.features = 3, .affine = true}, {2, 3, 2, 2},
                            t),
      layer<LSTM>("linear", LSTMOptions{.input_size = 3, .hidden_size = 2}, {4, 2, 3}, t),
      layer<GRU>("linear", GRUOptions{.input_size = 3, .hidden_size = 2}, {4, 2, 3}, t),
      layer<RNN>("linear", RNNOptions{.input_size = 3, .hidden_size = 2}, {4, 2, 3}, t),
      layer<PReLU>("prelu", PReLUOptions{}, {2, 3}, t),
      {"linear",
       [t] {
         MultiheadAttention attention({.embed_dim = 4, .num_heads = 2});
         const Tensor x = ones({3, 2, 4}, {.dtype = t});
         attention(x, x, x);
       }},
      {"matmul",
       [t] {
         Bilinear bilinear({.in1 = 2, .in2 = 3, .out = 2});
         bilinear(ones({2, 2}, {.dtype = t}), ones({2, 3}, {.dtype = t}));
       }},
  };
}

TEST(CommonErrors, DoublesIntoLayersOfFloats) {
  for (const Call& c : layers(DType::kF64)) {
    const std::string text = error_of<DTypeError>(c.run);
    EXPECT_THAT(text, AllOf(HasSubstr(c.what), HasSubstr("f64"), HasSubstr("f32"),
                            HasSubstr(", DType::kF32) converts")));
  }
  EXPECT_THAT(error_of<DTypeError>(layers(DType::kF64)[0].run),
              HasSubstr("[linear] x is f64 but weight is f32: x f64[2,3] cpu, weight f32[2,3] cpu; to(x, "
                        "DType::kF32) converts x, "
                        "net.to(DType::kF64) a module"));
}

TEST(CommonErrors, BytesAndIntegersIntoLayers) {
  for (const DType t : {DType::kU8, DType::kI64})
    for (const Call& c : layers(t))
      EXPECT_THAT(error_of<DTypeError>(c.run),
                  AllOf(HasSubstr(c.what), HasSubstr(name_of(t)), HasSubstr(", DType::kF32) converts")));
}

TEST(CommonErrors, AStateOfDoublesIntoAnLSTM) {
  nn::LSTM lstm({.input_size = 3, .hidden_size = 2});
  const Tensor state = zeros({1, 2, 2}, {.dtype = DType::kF64});
  EXPECT_ERROR(DTypeError, lstm(ones({4, 2, 3}), {state, state}), ", DType::kF32) converts");
}

TEST(CommonErrors, ALossOfManyElements) {
  const Tensor w = ones({3});
  GradManager gm;
  gm.attach(w);
  optim::SGD sgd({w}, {.lr = 0.1});
  optim::LBFGS lbfgs({w});
  optim::GradScaler scaler;
  optim::OptimizerWrapper wrapper(sgd);
  const std::vector<Call> calls = {
      {"[backward] the loss must have one element (or pass its dy)", [&] { gm.backward(w * 2); }},
      {"[grad] y must have one element (or pass its dy)", [&] { autograd::grad(w * 2, {w}); }},
      {"the loss must have one element (or pass its dy)", [&] { scaler.backward(gm, w * 2); }},
      {"the loss must have one element, got", [&] { wrapper.update_params(gm, w * 2); }},
      {"[LBFGS] the loss must have one element, got", [&] { lbfgs.step([&] { return w * 2; }); }},
  };
  for (const Call& c : calls) {
    const auto recording = gm.record();
    EXPECT_THAT(error_of<ShapeError>(c.run),
                AllOf(HasSubstr(c.what), HasSubstr("f32[3] cpu; its mean() or sum() has one")));
  }
  EXPECT_ERROR(ShapeError, w.item<float>(), "f32[3] cpu; to_vector() gives all");
}

struct Lonely : nn::Layer {
  nn::Linear fc{{.in = 2, .out = 1}};
  Tensor forward(const Tensor& x) override { return fc(x); }
};

TEST(CommonErrors, AModelWhoseLayersHaveNoParent) {
  Lonely net;
  EXPECT_ERROR(ValueError, optim::SGD(net.parameters(), {.lr = 0.1}), "[SGD] expected at least one parameter",
               "made with it as their parent: nn::Linear fc{this, \"fc\", {");
  EXPECT_ERROR(ValueError, optim::LBFGS(net.parameters()), "as their parent");
  GradManager gm;
  gm.attach(net.parameters());
  const auto recording = gm.record();
  EXPECT_ERROR(StateError, gm.backward(mean(net(ones({4, 2})))), "0 tensors attached", "as their parent");
}

TEST(CommonErrors, AssigningToAParameterUnderARecording) {
  nn::Linear fc({.in = 2, .out = 3});
  Tensor v = ones({2});
  GradManager gm;
  gm.attach(fc.parameters()), gm.attach(v);
  const Tensor weight = fc.parameter("weight");
  {
    auto recording = gm.record();
    EXPECT_ERROR(StateError, fc.weight += 1, "attached tensor (a parameter)", "f32[3,2]", "no_record()");
    EXPECT_ERROR(StateError, fc.weight[0] = v, "no_record()");
    nn::Linear other({.in = 2, .out = 3});  // not attached: only the value is recorded
    EXPECT_ERROR(StateError, other.weight[0] = v, "parameter", "no_record()");
    const auto off = no_record();
    fc.weight[0] = 5;
    fc.weight += 1;
  }
  EXPECT_TRUE(fc.weight.is_same(weight));
  EXPECT_EQ(weight.to_vector<float>()[1], 6);
}

TEST(CommonErrors, TheOtherOrderOfBatchAndSequence) {
  for (const bool batch_first : {false, true}) {
    nn::MultiheadAttention attention({.embed_dim = 4, .num_heads = 2, .batch_first = batch_first});
    // Two sequences of 3 queries and 5 keys, in the order that the module does not have.
    const auto x = [&](int64_t length) { return batch_first ? ones({length, 2, 4}) : ones({2, length, 4}); };
    const std::string hint = batch_first ? "batch_first = false" : "batch_first = true";
    EXPECT_ERROR(ShapeError, attention(x(3), x(5), x(5)), hint);
    EXPECT_ERROR(ShapeError,
                 attention(x(3), x(3), x(3), {.key_padding_mask = zeros({2, 3}, {.dtype = DType::kBool})}),
                 hint);
    EXPECT_ERROR(ShapeError, attention(x(3), x(3), x(3), {.attn_mask = zeros({3, 3})}), hint);
    EXPECT_THAT(error_of<ShapeError>([&] { attention(x(3), x(5), x(4)); }), Not(HasSubstr("they fit")));
  }
}

TEST(CommonErrors, ChannelsInTheLastDim) {
  nn::Conv2d conv({.in = 3, .out = 4, .kernel = 3});
  EXPECT_ERROR(ShapeError, conv(ones({2, 8, 9, 3})), "[N,C,H,W]", "movedim(x, -1, -3)", "f32[2,8,9,3]");
  EXPECT_NO_THROW(conv(movedim(ones({2, 8, 9, 3}), -1, -3)));
  EXPECT_NO_THROW(conv(movedim(ones({8, 9, 3}), -1, -3)));
  EXPECT_THAT(error_of<ShapeError>([&] { conv(ones({2, 8, 9, 9})); }), Not(HasSubstr("movedim")));
}

TEST(CommonErrors, BackwardTwice) {
  Tensor w = ones({2});
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  const Tensor loss = sum(w);
  gm.backward(loss);
  const std::string text = error_of<StateError>([&] { gm.backward(loss); });
  EXPECT_THAT(text, AllOf(HasSubstr("already used by backward"), HasSubstr("backward({a, b})")));
  EXPECT_EQ(text, error_of<StateError>([&] { recording.backward(loss); }));
}

TEST(CommonErrors, AStateOfAnotherNetwork) {
  nn::Sequential net, other;
  for (int i = 0; i < 28; ++i) {
    net.add<nn::Linear>({.in = 2, .out = 2});
    other.add("block" + std::to_string(i), nn::layer<nn::Linear>({.in = 2, .out = 2}));
  }
  const std::string text = error_of<ValueError>([&] { net.load_state_dict(other.state_dict()); });
  EXPECT_THAT(text, AllOf(HasSubstr("\n  missing (56): 0.weight"),
                          HasSubstr("\n  unexpected (56): block0.weight"), HasSubstr("and 48 more")));
  EXPECT_LT(text.size(), 500u);
}

TEST(CommonErrors, AStepWithoutAGradient) {
  const Tensor w = ones({2});
  optim::SGD sgd({w}, {.lr = 0.1});
  testing::internal::CaptureStderr();
  sgd.step().step();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("no parameter has a gradient"), HasSubstr("SGD"), HasSubstr("backward")));
  testing::internal::CaptureStderr();
  sgd.step();
  w.set_grad(ones({2}));
  sgd.step();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "once, and not with a gradient";
}

}  // namespace
}  // namespace gradus
