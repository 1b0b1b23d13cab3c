// CapturedStep against the same training without it: parameters, buffers, optimizer states, losses and random
// numbers are bit-equal after steps that were recorded and replayed.
#include "gradus/autograd/captured_step.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/ops/values.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using Tensors = CapturedStep::Tensors;
using Values = std::vector<std::vector<double>>;

Values values_of(const Tensors& xs) {
  Values all;
  for (const Tensor& x : xs) all.push_back(x.to_vector<double>());
  return all;
}

using MakeNet = std::function<std::unique_ptr<nn::Layer>()>;
using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const Tensors&)>;

struct Case {
  std::string name;
  MakeNet net;
  Shape input;  // of one batch
  MakeOptimizer optimizer;
  bool bf16 = false;
};

template <class O, class Options> MakeOptimizer optimizer(Options o) {
  return [o](const Tensors& params) { return std::make_unique<O>(params, o); };
}

std::unique_ptr<nn::Layer> sequence(const std::vector<nn::LayerFactory>& layers) {
  return std::make_unique<nn::Sequential>(layers);
}

std::unique_ptr<nn::Layer> mlp() {
  return sequence({nn::layer<nn::Linear>({.in = 32, .out = 32}), nn::layer<nn::ReLU>(),
                   nn::layer<nn::Linear>({.in = 32, .out = 32}), nn::layer<nn::ReLU>(),
                   nn::layer<nn::Linear>({.in = 32, .out = 10})});
}
std::unique_ptr<nn::Layer> matrices() {
  return sequence({nn::layer<nn::Linear>({.in = 32, .out = 16, .bias = false}), nn::layer<nn::ReLU>(),
                   nn::layer<nn::Linear>({.in = 16, .out = 10, .bias = false})});
}
std::unique_ptr<nn::Layer> cnn() {
  return sequence({nn::layer<nn::Conv2d>({.in = 3, .out = 8, .kernel = 3, .padding = 1}),
                   nn::layer<nn::BatchNorm2d>({.features = 8}), nn::layer<nn::ReLU>(),
                   nn::layer<nn::MaxPool2d>({.kernel = 2}), nn::layer<nn::Dropout>({.p = 0.3}),
                   nn::layer<nn::Conv2d>({.in = 8, .out = 16, .kernel = 3, .padding = 1}),
                   nn::layer<nn::LeakyReLU>(), nn::layer<nn::Flatten>(),
                   nn::layer<nn::Linear>({.in = 16 * 16, .out = 10})});
}

// An encoder layer over 5 positions, with dropout of the attention's weights.
std::unique_ptr<nn::Layer> transformer() {
  return sequence(
      {nn::layer<nn::TransformerEncoderLayer>(
           {.d_model = 8, .nhead = 2, .dim_feedforward = 16, .dropout = 0.3, .batch_first = true}),
       nn::layer<nn::Flatten>(), nn::layer<nn::Linear>({.in = 5 * 8, .out = 10})});
}

std::vector<Case> all_cases() {
  const auto sgd = optimizer<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
  return {
      {"MlpWithSGD", &mlp, {8, 32}, sgd},
      {"MlpWithAdam", &mlp, {8, 32}, optimizer<optim::Adam>(optim::AdamOptions{.lr = 0.01})},
      {"MlpWithNAdam", &mlp, {8, 32}, optimizer<optim::NAdam>(optim::NAdamOptions{.lr = 0.01})},
      {"MlpWithLAMB", &mlp, {8, 32}, optimizer<optim::LAMB>(optim::LAMBOptions{.lr = 0.01})},
      {"MlpWithAdafactor", &mlp, {8, 32}, optimizer<optim::Adafactor>(optim::AdafactorOptions{})},
      {"MatricesWithMuon", &matrices, {8, 32}, optimizer<optim::Muon>(optim::MuonOptions{.lr = 0.01})},
      {"CnnWithSGD", &cnn, {4, 3, 8, 8}, sgd},
      {"CnnWithAdadelta", &cnn, {4, 3, 8, 8}, optimizer<optim::Adadelta>(optim::AdadeltaOptions{})},
      {"CnnInBf16", &cnn, {4, 3, 8, 8}, sgd, true},
      {"TransformerWithAdam",
       &transformer,
       {4, 5, 8},
       optimizer<optim::Adam>(optim::AdamOptions{.lr = 0.01})},
  };
}

// A training of 12 steps with a learning rate that changes at step 8, and dropout.
struct Training {
  std::unique_ptr<nn::Layer> net;
  std::unique_ptr<optim::Optimizer> opt;
  GradManager gm;
  bool bf16;

  explicit Training(const Case& c) : bf16(c.bf16) {
    manual_seed(3);
    net = c.net();
    opt = c.optimizer(net->parameters());
    gm.attach(net->parameters());
  }
  Tensors step(const Tensors& in) {
    std::optional<Autocast> amp;
    if (bf16) amp.emplace(DType::kBF16);
    auto recording = gm.record();
    const Tensor logits = (*net)(in[0]), loss = nn::cross_entropy(logits, in[1]);
    gm.backward(loss);
    opt->step().clear_grad();
    return {loss, logits};
  }
  Values state() {
    Tensors all = net->parameters();
    for (const Tensor& b : net->buffers()) all.push_back(b);
    for (const auto& [name, tensor] : opt->state_dict().tensors) all.push_back(tensor);
    Values values = values_of(all);
    for (const auto& [name, number] : opt->state_dict().numbers) values.push_back({number});
    return values;
  }
};

Tensors batch(const Case& c, uint64_t i) {
  const Tensor target = empty({c.input[0]}, {.dtype = DType::kI64});
  for (int64_t k = 0; k < target.numel(); ++k) target.ptr<int64_t>()[k] = (k + int64_t(i)) % 10;
  return {random_tensor(c.input, DType::kF32, i + 1), target};
}

class CapturedTraining : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, CapturedTraining, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CapturedTraining, HasTheBitsOfThePlainOne) {
  const Case& c = GetParam();
  Training plain(c);
  std::vector<Values> want;
  for (uint64_t i = 0; i < 12; ++i) {
    if (i == 8) plain.opt->set_lr(0.003);
    want.push_back(values_of(plain.step(batch(c, i))));
  }
  const double next = rand({1}).item<double>();

  Training captured(c);
  CapturedStep step([&](const Tensors& in) { return captured.step(in); });
  std::vector<Tensors> results;
  for (uint64_t i = 0; i < 12; ++i) {
    if (i == 8) captured.opt->set_lr(0.003);
    results.push_back(step(batch(c, i)));
  }
  EXPECT_EQ(step.num_recordings(), 1u);
  EXPECT_GT(step.memory_bytes(), 0);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(values_of(results[i]), want[i]) << "step " << i;
  EXPECT_EQ(captured.state(), plain.state());
  EXPECT_EQ(rand({1}).item<double>(), next) << "the generator has advanced alike";
}

// A step in eager mode between replays uses the parameters that the replays wrote, also those that a kernel
// keeps in another layout, and the other way round.
TEST_P(CapturedTraining, TakesTurnsWithPlainSteps) {
  const Case& c = GetParam();
  Training plain(c);
  for (uint64_t i = 0; i < 9; ++i) plain.step(batch(c, i));
  Training captured(c);
  CapturedStep step([&](const Tensors& in) { return captured.step(in); }, {.warm_up = 1});
  for (uint64_t i = 0; i < 9; ++i) i % 3 == 2 ? captured.step(batch(c, i)) : step(batch(c, i));
  EXPECT_EQ(captured.state(), plain.state());
}

Tensors ones(int64_t n) { return {full({n}, 1)}; }

TEST(CapturedStep, KeepsARecordingForEachShape) {
  int runs = 0;
  CapturedStep step(
      [&](const Tensors& in) -> Tensors {
        ++runs;
        return {sum(in[0] * 2)};
      },
      {.warm_up = 1, .max_recordings = 2});
  for (int round = 0; round < 3; ++round)
    for (int64_t n : {3, 5, 7}) EXPECT_EQ(step(ones(n))[0].item<double>(), double(2 * n));
  EXPECT_EQ(step.num_recordings(), 2u);
  EXPECT_EQ(runs, 2 + 2 + 3) << "7 elements are a shape too many";
}

// Results do not change with later steps, and memory of recorded steps is not that of other tensors.
TEST(CapturedStep, ReturnsTensorsOfTheCallers) {
  const Tensor weight = full({64}, 3);
  CapturedStep step(
      [&](const Tensors& in) -> Tensors {
        return {exp(in[0]) * weight + 1, weight};
      },
      {.warm_up = 1});
  fill_(step({full({64}, 1)})[1], 5);  // also before the recording
  const Tensor first = step({full({64}, 1)})[0];
  const std::vector<double> values = first.to_vector<double>();
  Tensors others;
  for (int i = 0; i < 6; ++i) {
    others.push_back(full({64}, 7));
    step({full({64}, i)});
  }
  EXPECT_EQ(first.to_vector<double>(), values);
  for (const Tensor& x : others) EXPECT_EQ(x.to_vector<double>(), std::vector<double>(64, 7));
  EXPECT_EQ(weight.to_vector<double>(), std::vector<double>(64, 3));
}

// Values that the host writes within the function are constants of the step, also where a kernel changes them.
TEST(CapturedStep, WritesTheHostsConstantsAgain) {
  CapturedStep step(
      [&](const Tensors& in) -> Tensors {
        Tensor literal = tensor({1.f, 2.f, 3.f}), number = scalar(4), list = tensor<float>({5, 6, 7}, {3});
        literal += in[0], number *= 2, list -= in[0];
        return {literal + number + list};
      },
      {.warm_up = 0});
  const std::vector<double> want = {14, 16, 18};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step(ones(3))[0].to_vector<double>(), want) << i;
}

TEST(CapturedStep, SharesMemoryOfIntermediateResults) {
  const auto chain = [](const Tensors& in) -> Tensors {
    Tensor x = in[0];
    for (int i = 0; i < 20; ++i) x = exp(x * 0.1);
    return {x};
  };
  CapturedStep step(chain, {.warm_up = 0});
  step({full({1000}, 0.5)});
  EXPECT_LE(step.memory_bytes(), 3 * 4032);
  EXPECT_EQ(step({full({1000}, 0.25)})[0].to_vector<double>(),
            chain({full({1000}, 0.25)})[0].to_vector<double>());
}

// Module::to gives parameters other memory; the step is recorded again.
TEST(CapturedStep, NoticesParametersThatMoved) {
  nn::Linear net({.in = 3, .out = 2});
  CapturedStep step([&](const Tensors& in) -> Tensors { return {net(in[0])}; }, {.warm_up = 1});
  const Tensor x = full({1, 3}, 1);
  for (int i = 0; i < 3; ++i) step({x});
  net.to(DType::kF64), net.to(DType::kF32);
  fill_(net.weight, 2), fill_(net.bias, 1);
  EXPECT_EQ(step({x})[0].to_vector<double>(), (std::vector<double>{7, 7}));
  EXPECT_EQ(step.num_recordings(), 0u);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(step({x})[0].to_vector<double>(), (std::vector<double>{7, 7}));
  EXPECT_EQ(step.num_recordings(), 1u);
}

// The scope around the training keeps casts of parameters; an evaluation before the recording has made them.
TEST(CapturedStep, CastsParametersInEachReplay) {
  const auto train = [](bool is_captured) {
    manual_seed(1);
    const auto amp = autocast(DType::kBF16);
    nn::Linear net({.in = 3, .out = 2});
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    GradManager gm;
    gm.attach(net.parameters());
    const auto f = [&](const Tensors& in) -> Tensors {
      auto recording = gm.record();
      gm.backward(sum(square(net(in[0]))));
      opt.step().clear_grad();
      return {};
    };
    CapturedStep step(f, {.warm_up = 1});
    for (uint64_t i = 0; i < 5; ++i) {
      const Tensors in = {random_tensor({4, 3}, DType::kF32, i + 1)};
      is_captured ? step(in) : f(in);
      net(in[0]);
    }
    return net.weight.to_vector<double>();
  };
  EXPECT_EQ(train(true), train(false));
}

// The optimizer steps outside of the function, on gradients that replays leave.
TEST(CapturedStep, LeavesItsGradients) {
  const auto train = [](bool is_captured) {
    manual_seed(1);
    nn::Linear net({.in = 3, .out = 2});
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    GradManager gm;
    gm.attach(net.parameters());
    const auto f = [&](const Tensors& in) -> Tensors {
      auto recording = gm.record();
      gm.backward(sum(square(net(in[0]))));
      return {};
    };
    CapturedStep step(f, {.warm_up = 1});
    for (uint64_t i = 0; i < 6; ++i) {
      const Tensors in = {random_tensor({i % 2 ? 4 : 5, 3}, DType::kF32, i + 1)};
      is_captured ? step(in) : f(in);
      opt.step().clear_grad();
    }
    return net.weight.to_vector<double>();
  };
  EXPECT_EQ(train(true), train(false));
}

// A replay would write what the function adds to.
TEST(CapturedStep, RefusesGradientsOfOtherSteps) {
  nn::Linear net({.in = 3, .out = 2});
  GradManager gm;
  gm.attach(net.parameters());
  const auto backward = [&](const Tensors& in) -> Tensors {
    auto recording = gm.record();
    gm.backward(sum(net(in[0])));
    return {};
  };
  const Tensor x = full({1, 3}, 1);
  {
    CapturedStep step(backward, {.warm_up = 1});
    step({x});
    EXPECT_ERROR(StateError, step({x}), "[backward]", "from before the step");
  }
  optim::SGD(net.parameters(), {.lr = 0}).clear_grad();
  CapturedStep step(backward, {.warm_up = 0});
  step({x});
  EXPECT_ERROR(StateError, step({x}), "[CapturedStep]", "clear gradients");
}

// Parameters of which kernels see views alone, other tensors in their place, and another dtype of the caller.
TEST(CapturedStep, NoticesChangesThatNoKernelShows) {
  nn::Linear net({.in = 3, .out = 2, .bias = false});
  fill_(net.weight, 1);
  CapturedStep step([&](const Tensors& in) -> Tensors { return {net(in[0])}; }, {.warm_up = 0});
  const Tensor x = full({1, 3}, 1);
  const std::vector<double> threes = {3, 3}, sixes = {6, 6};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(step({x})[0].to_vector<double>(), threes);
  net.to(DType::kF64), net.to(DType::kF32);
  fill_(net.weight, 2);
  EXPECT_EQ(step({x})[0].to_vector<double>(), sixes) << "another storage";
  {
    const nn::ParameterScope other(net, {full({2, 3}, 1)});
    EXPECT_EQ(step({x})[0].to_vector<double>(), threes) << "another tensor";
  }
  EXPECT_EQ(step({x})[0].to_vector<double>(), sixes) << "the first tensor";
  {
    const auto amp = autocast(DType::kBF16);
    EXPECT_EQ(step({x})[0].dtype(), DType::kBF16);
  }
  EXPECT_EQ(step({x})[0].dtype(), DType::kF32);
}

// Gradients of later replays are other tensors, also where the first ones are kept.
TEST(CapturedStep, GivesGradientsOfTheirOwn) {
  nn::Linear net({.in = 3, .out = 1, .bias = false});
  GradManager gm;
  gm.attach(net.parameters());
  CapturedStep step(
      [&](const Tensors& in) -> Tensors {
        auto recording = gm.record();
        gm.backward(sum(net(in[0])));
        return {};
      },
      {.warm_up = 0});
  Tensors grads;
  for (int i = 0; i < 3; ++i) {
    step({full({1, 3}, i)});
    grads.push_back(net.weight.grad());
    net.weight.set_grad({});
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(grads[size_t(i)].to_vector<double>(), (std::vector<double>(3, i))) << i;
}

// An optimizer's step alone would repeat the recording's gradients.
TEST(CapturedStep, RefusesToReadGradientsOfOtherSteps) {
  nn::Linear net({.in = 3, .out = 2});
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  GradManager gm;
  gm.attach(net.parameters());
  CapturedStep update(
      [&](const Tensors&) -> Tensors {
        opt.step().clear_grad();
        return {};
      },
      {.warm_up = 1});
  for (int i = 0; i < 2; ++i) {
    {
      auto recording = gm.record();
      gm.backward(sum(net(full({1, 3}, 1))));
    }
    if (i == 0) update({});
  }
  EXPECT_ERROR(StateError, update({}), "[SGD]", "from before the step");
}

// Parameters that are attached, and given to the optimizer, between replays train from then on.
TEST(CapturedStep, NoticesParametersThatAreAttachedLater) {
  const auto train = [](bool is_captured) {
    manual_seed(1);
    nn::Linear first({.in = 3, .out = 3}), second({.in = 3, .out = 2});
    optim::SGD opt(second.parameters(), {.lr = 0.1});
    GradManager gm;
    gm.attach(second.parameters());
    const auto f = [&](const Tensors& in) -> Tensors {
      auto recording = gm.record();
      gm.backward(sum(square(second(first(in[0])))));
      opt.step().clear_grad();
      return {};
    };
    CapturedStep step(f, {.warm_up = 0});
    for (uint64_t i = 0; i < 6; ++i) {
      if (i == 3) gm.attach(first.parameters()), opt.add_param_group(first.parameters(), {.lr = 0.1});
      const Tensors in = {random_tensor({4, 3}, DType::kF32, i + 1)};
      is_captured ? step(in) : f(in);
    }
    return first.weight.to_vector<double>();
  };
  EXPECT_EQ(train(true), train(false));
}

// A gradient penalty: the gradient of an input, and of a tensor that the step makes. The manager outlives the step.
TEST(CapturedStep, TakesGradientsOfItsInputs) {
  GradManager gm;
  const auto grads_of = [&](bool is_captured) {
    const auto f = [&](const Tensors& in) -> Tensors {
      const Tensor own = in[0] * 2;
      gm.attach({in[0], own});
      auto recording = gm.record();
      gm.backward(sum(square(in[0]) * own));
      return {in[0].grad(), own.grad()};
    };
    CapturedStep step(f, {.warm_up = 1});
    Values all;
    for (int i = 0; i < 5; ++i)
      for (const Tensor& x : is_captured ? step({full({3}, i)}) : f({full({3}, i)}))
        all.push_back(x.to_vector<double>());
    return all;
  };
  EXPECT_EQ(grads_of(true), grads_of(false));
  auto recording = gm.record();
}

TEST(CapturedStep, ReadsInputsWithGaps) {
  CapturedStep step([&](const Tensors& in) -> Tensors { return {in[0] * 2}; }, {.warm_up = 0});
  const Tensor wide = random_tensor({4, 6});
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(step({narrow(wide, 1, i, 3)})[0].to_vector<double>(),
              (narrow(wide, 1, i, 3) * 2).to_vector<double>());
  EXPECT_EQ(step.num_recordings(), 1u);
}

// Code in a function that works in another Context of this thread is captured.
TEST(CapturedStep, CapturesInOtherContexts) {
  CapturedStep step(
      [&](const Tensors& in) -> Tensors {
        Context context = Context::current().snapshot();
        const ContextScope scope(context);
        return {in[0] * 2};
      },
      {.warm_up = 0});
  for (int i = 1; i < 4; ++i)
    EXPECT_EQ(step({full({2}, i)})[0].to_vector<double>(), (std::vector<double>{2. * i, 2. * i}));
}

TEST(CapturedStep, AveragesWithTheCountsOfReplays) {
  const auto train = [](bool is_captured) {
    manual_seed(1);
    nn::Linear net({.in = 3, .out = 2});
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    optim::AveragedModel average(net, {});
    GradManager gm;
    gm.attach(net.parameters());
    const auto f = [&](const Tensors& in) -> Tensors {
      auto recording = gm.record();
      gm.backward(sum(square(net(in[0]))));
      opt.step().clear_grad();
      average.update_parameters();
      return {};
    };
    CapturedStep step(f);
    for (uint64_t i = 0; i < 8; ++i) {
      const Tensors in = {random_tensor({4, 3}, DType::kF32, i + 1)};
      is_captured ? step(in) : f(in);
    }
    Values all;
    for (const auto& [name, x] : average.weights()) all.push_back(x.to_vector<double>());
    return all;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(CapturedStep, ThrowsTheErrorsOfKernels) {
  const Tensor table = random_tensor({4, 2});
  CapturedStep step([&](const Tensors& in) -> Tensors { return {index_select(table, 0, in[0])}; },
                    {.warm_up = 0});
  const auto index = [](int64_t i) { return tensor<int64_t>({i}, {1}); };
  step({index(1)});
  EXPECT_ERROR(IndexError, step({index(9)}), "9");
  EXPECT_EQ(step({index(3)})[0].to_vector<double>(), select(table, 0, 3).to_vector<double>());
}

TEST(CapturedStep, RefusesWhatAReplayCannotRepeat) {
  const auto expect_refusal = [](const char* op, std::function<void(const Tensor&)> f) {
    CapturedStep step(
        [&](const Tensors& in) -> Tensors {
          f(in[0]);
          return {};
        },
        {.warm_up = 0});
    EXPECT_ERROR(StateError, step(ones(3)), op, "captur");
    EXPECT_EQ(step.num_recordings(), 0u);
    EXPECT_FALSE(Context::current().capture);
  };
  expect_refusal("[item]", [](const Tensor& x) { sum(x).item<double>(); });
  expect_refusal("[to_vector]", [](const Tensor& x) { x.to_vector<double>(); });
  expect_refusal("[data]", [](const Tensor& x) { x.data<float>(); });
  expect_refusal("[nonzero]", [](const Tensor& x) { nonzero(x); });
  expect_refusal("[masked_select]", [](const Tensor& x) { masked_select(x, gt(x, 0)); });
  expect_refusal("[unique]", [](const Tensor& x) { unique(x); });
  nn::Linear net({.in = 3, .out = 2});
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  expect_refusal("[SGD]", [&](const Tensor&) { opt.set_lr(0.3); });
  expect_refusal("[SGD]", [&](const Tensor&) { opt.set_options(0, {.lr = 0.1, .momentum = 0.5}); });
  float value = 1;
  expect_refusal("[from_blob]", [&](const Tensor&) { from_blob(&value, {}); });
  expect_refusal("[to]", [](const Tensor& x) { to(x, Device{DeviceType::kCPU, 1}); });
  expect_refusal("CapturedStep", [](const Tensor& x) { fill_(x, 2); });
  expect_refusal("[rand]", [](const Tensor&) {
    Context context = Context::current().snapshot();
    context.generator = std::make_shared<RandomGenerator>(7);
    const ContextScope scope(context);
    rand({3});
  });
  expect_refusal("[normal_]", [](const Tensor&) { nn::init::normal_(empty({3})); });
  CapturedStep inner([](const Tensors& in) { return in; });
  expect_refusal("[CapturedStep]", [&](const Tensor& x) { inner({x}); });
}

TEST(CapturedStep, ChecksItsArguments) {
  const auto identity = [](const Tensors& in) { return in; };
  EXPECT_ERROR(ValueError, CapturedStep(identity, {.warm_up = -1}), "[CapturedStep]", "-1");
  CapturedStep step(identity);
  EXPECT_ERROR(StateError, step({Tensor()}), "[CapturedStep]", "inputs[0]");
  EXPECT_ERROR(DeviceError, step({empty({2}, {.device = {DeviceType::kMeta}})}), "[CapturedStep]", "meta");
}

}  // namespace
}  // namespace gradus
