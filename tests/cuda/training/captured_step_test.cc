// Captured steps (CUDA graphs) on the emulated cuda:0: 20 steps of which most are replays have the bits of 20
// plain steps, with dropout, a changing learning rate, and an overflow under a GradScaler. Tensors of other
// code are unharmed, and a replay is one launch without waits or allocations.
#include "gradus/autograd/captured_step.h"

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/nn/losses.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/images/conv_benchmark.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using Tensors = CapturedStep::Tensors;

constexpr Device kCuda{DeviceType::kCUDA};

std::string bits(const Tensor& x) {
  const Tensor here = raw::contiguous(raw::to(x, kCPU));
  return {static_cast<const char*>(here.raw_ptr()), size_t(here.nbytes())};
}

// What a training consists of. `step` takes a batch and the factor of the loss.
struct Training {
  std::vector<std::unique_ptr<nn::Module>> nets;
  std::vector<std::unique_ptr<GradManager>> gms;
  std::vector<std::unique_ptr<optim::Optimizer>> opts;
  optim::GradScaler scaler{{.init_scale = 1024, .growth_interval = 4}};
  std::function<Tensors(const Tensors&)> step;

  template <class Net, class O, class Options, class... Args>
  Net& add(const Options& o, const Args&... args) {
    Context context = Context::current().snapshot();
    context.device = kCuda;
    const ContextScope there(context);
    auto net = std::make_unique<Net>(args...);
    Net& made = *net;
    gms.push_back(std::make_unique<GradManager>());
    gms.back()->attach(net->parameters());
    opts.push_back(std::make_unique<O>(net->parameters(), o));
    nets.push_back(std::move(net));
    return made;
  }
  std::vector<std::string> state() {
    std::vector<std::string> all;
    for (const auto& net : nets) {
      for (const Tensor& p : net->parameters()) all.push_back(bits(p));
      for (const Tensor& b : net->buffers()) all.push_back(bits(b));
    }
    for (const auto& opt : opts) {
      for (const auto& [name, x] : opt->state_dict().tensors) all.push_back(bits(x));
      for (const auto& [name, x] : opt->state_dict().numbers) all.push_back(std::to_string(x));
    }
    all.push_back(std::to_string(scaler.scale()));
    return all;
  }
};

struct Case {
  std::string name;
  std::function<void(Training&)> build;
  std::function<Tensors()> batch;
};

// A classifier in bf16 with a GradScaler; in[2] multiplies the loss.
void build_classifier(Training& t, nn::Layer& net) {
  t.step = [&](const Tensors& in) -> Tensors {
    const auto amp = autocast(DType::kBF16);
    auto recording = t.gms[0]->record();
    const Tensor loss = nn::cross_entropy(net(in[0]), in[1]);
    t.scaler.backward(*t.gms[0], loss * in[2]);
    t.scaler.step(*t.opts[0], {.clip_norm = 5.0});
    t.opts[0]->clear_grad();
    return {loss};
  };
}
// The layers of models::MnistNet with fewer channels: the emulated device takes 25 s for 1.2 million parameters.
void build_mnist(Training& t) {
  const std::vector<nn::LayerFactory> layers = {nn::layer<nn::Conv2d>({.in = 1, .out = 4, .kernel = 3}),
                                                nn::layer<nn::ReLU>(),
                                                nn::layer<nn::Conv2d>({.in = 4, .out = 8, .kernel = 3}),
                                                nn::layer<nn::ReLU>(),
                                                nn::layer<nn::MaxPool2d>({.kernel = 2}),
                                                nn::layer<nn::Dropout>({.p = 0.25}),
                                                nn::layer<nn::Flatten>(),
                                                nn::layer<nn::Linear>({.in = 1152, .out = 16}),
                                                nn::layer<nn::ReLU>(),
                                                nn::layer<nn::Dropout>({.p = 0.5}),
                                                nn::layer<nn::Linear>({.in = 16, .out = 10})};
  build_classifier(t, t.add<nn::Sequential, optim::Adam>(optim::AdamOptions{.lr = 1e-3}, layers));
  t.opts[0]->keep_master_weights();
}
void build_resnet(Training& t) {
  models::ResNetOptions o = models::resnet18();
  o.width = 4, o.classes = 10;
  build_classifier(t, t.add<models::ResNet, optim::SGD>(optim::SGDOptions{.lr = 0.01, .momentum = 0.9}, o));
}
Tensors images(int64_t channels, int64_t size) {
  return {randn({2, channels, size, size}, {.device = kCuda}), randint(10, {2}, {DType::kI64, kCuda})};
}

void build_gpt(Training& t) {
  auto& net = t.add<models::GPT, optim::AdamW>(
      optim::AdamWOptions{.lr = 1e-3},
      models::GPTOptions{
          .vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 16, .dropout = 0.2});
  t.step = [&](const Tensors& in) -> Tensors {
    auto recording = t.gms[0]->record();
    const Tensor loss = nn::cross_entropy(flatten(net(in[0]), 0, 1), flatten(in[1]));
    t.gms[0]->backward(loss);
    t.opts[0]->step().clear_grad();
    return {loss};
  };
}

// Draws the generator's input within the step.
void build_dcgan(Training& t) {
  const optim::AdamOptions adam{.lr = 2e-4, .betas = {0.5, 0.999}};
  auto& gen = t.add<models::DCGANGenerator, optim::Adam>(
      adam, models::DCGANGeneratorOptions{.size = 16, .channels = 1, .width = 4});
  auto& disc = t.add<models::DCGANDiscriminator, optim::Adam>(
      adam, models::DCGANDiscriminatorOptions{.size = 16, .channels = 1, .width = 4});
  t.step = [&](const Tensors& in) -> Tensors {
    Recording making = t.gms[0]->record();
    const Tensor fake = gen(randn({in[0].size(0), gen.options().latent}, {.device = kCuda}));
    making.pause();
    Tensor disc_loss;
    {
      Recording judging = t.gms[1]->record();
      disc_loss = nn::binary_cross_entropy_with_logits_to(disc(in[0]), 1) +
                  nn::binary_cross_entropy_with_logits_to(disc(detach(fake)), 0);
      judging.backward(disc_loss);
      t.opts[1]->step().clear_grad();
    }
    making.resume();
    const Tensor gen_loss = nn::binary_cross_entropy_with_logits_to(disc(fake), 1);
    making.backward(gen_loss);
    t.opts[0]->step().clear_grad();
    return {disc_loss, gen_loss};
  };
}

std::vector<Case> all_cases() {
  const auto tokens = [] { return randint(11, {2, 8}, {DType::kI64, kCuda}); };
  return {{"Mnist", &build_mnist, [] { return images(1, 28); }},
          {"ResNet18", &build_resnet, [] { return images(3, 32); }},
          {"Dcgan", &build_dcgan, [] { return images(1, 16); }},
          {"Gpt", &build_gpt, [=] {
             return Tensors{tokens(), tokens()};
           }}};
}

// Bits repeat with Context::deterministic alone.
class CapturedTraining : public testing::TestWithParam<Case> {
 protected:
  CapturedTraining() { Context::current().deterministic = true; }
  ~CapturedTraining() override { Context::current().deterministic = false; }
};
INSTANTIATE_TEST_SUITE_P(All, CapturedTraining, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

// Step 9 overflows.
TEST_P(CapturedTraining, HasTheBitsOfThePlainOne) {
  manual_seed(11);
  std::vector<Tensors> batches;
  for (int i = 0; i < 20; ++i) {
    batches.push_back(GetParam().batch());
    batches.back().push_back(
        full({}, i == 9 ? std::numeric_limits<float>::infinity() : 1.f, {.device = kCuda}));
  }
  const auto train = [&](bool is_captured, std::vector<std::string>& results) {
    manual_seed(3);
    Training t;
    GetParam().build(t);
    CapturedStep step(t.step);
    Tensors others;
    for (int i = 0; i < 20; ++i) {
      if (i == 7) {
        for (const auto& opt : t.opts) opt->set_lr(opt->lr() / 3);
      }
      others.push_back(full({37}, i, {.device = kCuda}));
      for (const Tensor& x : is_captured ? step(batches[size_t(i)]) : t.step(batches[size_t(i)]))
        results.push_back(bits(x));
    }
    EXPECT_EQ(step.num_recordings(), is_captured ? 1u : 0u);
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(others[size_t(i)].to_vector<double>(), std::vector<double>(37, i)) << "eager tensor " << i;
    std::vector<std::string> state = t.state();
    state.push_back(bits(rand({3}, {.device = kCuda})));
    return state;
  };
  std::vector<std::string> want_results, results;
  const std::vector<std::string> want = train(false, want_results), got = train(true, results);
  EXPECT_EQ(results, want_results);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i] == want[i], true) << "part " << i << " of the state";
}

TEST_P(CapturedTraining, IsOneLaunchWithoutWaits) {
  Training t;
  GetParam().build(t);
  Tensors batch = GetParam().batch();
  batch.push_back(full({}, 1, {.device = kCuda}));
  CapturedStep step(t.step);
  for (int i = 0; i < 5; ++i) step(batch);
  cuda::HostCallScope calls;
  step(batch);
  const cuda::HostCalls all = calls.total();
  EXPECT_EQ(all.waits, 0);
  EXPECT_EQ(all.allocations, 0);
  EXPECT_EQ(all.pageable_copies + all.copies_to_device + all.copies_to_host, 0);
  // The graph, a copy of each input and result, and the generator's state.
  EXPECT_LE(all.launches + all.copies_on_device + all.library_calls, 1 + 3 + 2 + 2);
}

// Plain steps between replays, as for the last batch of an epoch, whose size is another.
TEST_P(CapturedTraining, TakesTurnsWithPlainSteps) {
  Tensors batch = GetParam().batch();
  batch.push_back(full({}, 1, {.device = kCuda}));
  const auto train = [&](bool is_captured) {
    manual_seed(3);
    Training t;
    GetParam().build(t);
    CapturedStep step(t.step, {.warm_up = 2});
    for (int i = 0; i < 9; ++i) is_captured&& i % 3 != 2 ? step(batch) : t.step(batch);
    return t.state();
  };
  EXPECT_EQ(train(true) == train(false), true);
}

// Within a capture the host cannot wait for the times of a convolution's plans.
TEST(CapturedStepOnCuda, TimesNoConvolutions) {
  const Tensor w = ones({1, 1, 3, 3}, {.device = kCuda});
  raw::conv2d(ones({1, 1, 4, 4}, {.device = kCuda}), w, {});
  raw::conv_benchmark.enable(true);
  CapturedStep step([&](const Tensors& in) -> Tensors { return {raw::conv2d(in[0], w, {})}; },
                    {.warm_up = 0});
  EXPECT_EQ(step({ones({1, 1, 3, 3}, {.device = kCuda})})[0].item<float>(), 9);
  raw::conv_benchmark.enable(false);
}

// In TF32 the emulated libraries round the operands of products and convolutions, also those of gradients, except in
// cuDNN's nondeterministic engine.
TEST(CapturedStepOnCuda, GradientsAndRecordingsFollowTf32OfTheCaller) {
  Context::current().deterministic = true;
  Tensors leaves;
  for (const Shape& shape : {Shape{1, 8, 2, 3}, {1, 8, 1, 2}, {8, 8}, {8, 8}})
    leaves.push_back(full(shape, 1 + 0x1p-11f, {.device = kCuda}));
  GradManager gm;
  gm.attach(leaves);
  CapturedStep step(
      [&](const Tensors&) -> Tensors {
        auto recording = gm.record();
        gm.backward(sum(conv2d(leaves[0], leaves[1])) + sum(matmul(leaves[2], leaves[3])));
        return {};
      },
      {.warm_up = 1, .device = kCuda});
  for (const bool tf32 : {false, true, false}) {
    Context::current().tf32 = tf32;
    for (int i = 0; i < 3; ++i) {  // a plain step, a recorded one, and a replay
      step({});
      std::vector<double> grads;
      for (Tensor& x : leaves) grads.push_back(x.grad().to_vector<double>()[0]), x.set_grad({});
      EXPECT_EQ(grads, tf32 ? (std::vector<double>{1, 4, 8, 8})
                            : (std::vector<double>{1 + 0x1p-11, 4 + 0x1p-9, 8 + 0x1p-8, 8 + 0x1p-8}));
    }
  }
  EXPECT_EQ(step.num_recordings(), 2u);
  Context::current().deterministic = false;
}

TEST(CapturedStepOnCuda, RefusesWhatAReplayCannotRepeat) {
  const auto expect_refusal = [](const char* op, std::function<void(const Tensor&)> f) {
    CapturedStep step(
        [&](const Tensors& in) -> Tensors {
          f(in[0]);
          return {};
        },
        {.warm_up = 0});
    const Tensor x = full({3}, 1, {.device = kCuda});
    step({x});  // a step before the recording
    EXPECT_ERROR(StateError, step({x}), op, "cannot be captured");
    EXPECT_FALSE(Context::current().capture);
    EXPECT_EQ((x + 1).to_vector<double>(), std::vector<double>(3, 2)) << "the device works on after " << op;
  };
  expect_refusal("[item]", [](const Tensor& x) { sum(x).item<double>(); });
  expect_refusal("[nonzero]", [](const Tensor& x) { nonzero(x); });
  expect_refusal("[to]", [](const Tensor& x) { to(x, kCPU); });
  const Tensor on_host = full({3}, 1);
  expect_refusal("[to]", [&](const Tensor&) { to(on_host, kCuda); });
  expect_refusal("[tensor]", [](const Tensor&) { tensor<float>({1, 2}, {2}, kCuda); });
  expect_refusal("[rand]", [](const Tensor&) { rand({3}); });
}

// Steps that are not one kernel have the learning rate from the host.
TEST(CapturedStepOnCuda, RefusesOptimizersWithoutAStepKernel) {
  const Tensor p = full({2, 3}, 1, {.device = kCuda});
  const auto expect_refusal = [&](const char* name, std::unique_ptr<optim::Optimizer> opt) {
    CapturedStep step(
        [&](const Tensors& in) -> Tensors {
          p.set_grad(in[0] + 0);
          opt->step().clear_grad();
          return {};
        },
        {.warm_up = 0});
    const Tensor x = full({2, 3}, 1, {.device = kCuda});
    EXPECT_ERROR(ValueError, step({x}), name, "no kernels");
    EXPECT_FALSE(Context::current().capture);
    p.set_grad(x);
    opt->step().clear_grad();
  };
  expect_refusal("[Muon]", std::make_unique<optim::Muon>(Tensors{p}));
  expect_refusal("[Adafactor]", std::make_unique<optim::Adafactor>(Tensors{p}));
}

// A kernel's error about values in a replay is thrown when the host synchronizes.
TEST(CapturedStepOnCuda, ThrowsTheErrorsOfKernels) {
  const Tensor table = randn({4, 2}, {.device = kCuda});
  CapturedStep step([&](const Tensors& in) -> Tensors { return {index_select(table, 0, in[0])}; },
                    {.warm_up = 1});
  const auto index = [](int64_t i) { return tensor<int64_t>({i}, {1}, kCuda); };
  step({index(1)}), step({index(2)});
  const Tensor bad = step({index(9)})[0];
  EXPECT_ERROR(IndexError, bad.to_vector<double>(), "9");
  EXPECT_EQ(bits(step({index(3)})[0]), bits(select(table, 0, 3)));
}

}  // namespace
}  // namespace gradus
