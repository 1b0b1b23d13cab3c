// optim::StepInBackward: the steps of a backward are those of an optimizer after it, on one rank and behind the
// all-reduce of several.
#include "gradus/optim/step_in_backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/lbfgs.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::optim {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

using V = std::vector<double>;
V values(const Tensor& x) { return x.to_vector<double>(); }

std::shared_ptr<StepInBackward> adam_steps() {
  return std::make_shared<StepInBackward>(
      [](const Tensor& p) { return std::make_unique<Adam>(std::vector{p}, AdamOptions{.lr = 0.1}); });
}
std::shared_ptr<StepInBackward> sgd_steps() {
  return std::make_shared<StepInBackward>(
      [](const Tensor& p) { return std::make_unique<SGD>(std::vector{p}, SGDOptions{.lr = 1}); });
}

// A parameter that two layers share, and one that the loss does not reach.
struct Net {
  Tensor w = tensor<double>({0.5, -1, 2, 0.25}, {2, 2}), b = tensor<double>({1, 2}),
         unused = tensor<double>({7});
  std::vector<Tensor> parameters() const { return {w, b, unused}; }
  Tensor loss(double x) const {
    const Tensor h = tanh(matmul(full({1, 2}, x, {.dtype = DType::kF64}), w) + b);
    return sum(square(matmul(h, w)));
  }
};

TEST(StepInBackward, EqualsStepsAfterTheBackward) {
  Net now, later;
  const auto steps = adam_steps();
  Adam opt(later.parameters(), {.lr = 0.1});
  GradManager gm_now, gm_later;
  gm_now.attach(now.parameters(), steps);
  gm_later.attach(later.parameters());
  for (int i = 0; i < 4; ++i) {
    {
      auto recording = gm_now.record();
      gm_now.backward(now.loss(i + 1));
    }
    auto recording = gm_later.record();
    gm_later.backward(later.loss(i + 1));
    opt.step().clear_grad();
    for (const Tensor& p : now.parameters()) EXPECT_FALSE(p.grad().defined());
    EXPECT_EQ(values(now.w), values(later.w));
    EXPECT_EQ(values(now.b), values(later.b));
    EXPECT_THAT(values(now.unused), ElementsAre(7));
  }
  EXPECT_THAT(steps->optimizers(), SizeIs(3));
  steps->optimizers()[0]->set_lr(0);
  const V before = values(now.w);
  auto recording = gm_now.record();
  gm_now.backward(now.loss(1));
  EXPECT_EQ(values(now.w), before);
}

// A bucket per parameter: the first arrives while the backward goes on.
TEST(StepInBackward, StepsByTheReducedGradient) {
  dist::run_ranks(2, [] {
    Net now, later;
    const auto steps = adam_steps();
    const auto reduce = [] {
      return dist::make_allreduce_cb("mean", {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
    };
    const auto cb_now = reduce(), cb_later = reduce();
    Adam opt(later.parameters(), {.lr = 0.1});
    GradManager gm_now, gm_later;
    gm_now.attach(now.parameters(), cb_now, steps);
    gm_later.attach(later.parameters(), cb_later);
    const auto backward = [](GradManager& gm, const Tensor& loss) { gm.backward(loss); };
    for (int i = 0; i < 3; ++i) {
      const V before = values(now.w);
      {
        const dist::NoSync off = cb_now->no_sync(), off_later = cb_later->no_sync();
        auto recording = gm_now.record();
        backward(gm_now, now.loss(dist::get_rank()));
        auto recording_later = gm_later.record();
        backward(gm_later, later.loss(dist::get_rank()));
      }
      EXPECT_EQ(values(now.w), before) << "gradients accumulate";
      {
        auto recording = gm_now.record();
        backward(gm_now, now.loss(i + dist::get_rank()));
      }
      auto recording = gm_later.record();
      backward(gm_later, later.loss(i + dist::get_rank()));
      opt.step().clear_grad();
      EXPECT_EQ(values(now.w), values(later.w));
      EXPECT_EQ(values(now.b), values(later.b));
      EXPECT_FALSE(now.w.grad().defined());
    }
  });
}

TEST(StepInBackward, ALaterOpThatNeedsTheOldValueIsAnError) {
  Tensor w = tensor<double>({2}), x = tensor<double>({3});
  GradManager gm;
  gm.attach(w, sgd_steps());
  gm.attach(x);
  auto recording = gm.record();
  const Tensor early = x * w.detach();  // its backward is later, and needs the value of w
  EXPECT_THROW(gm.backward(sum(early + w * 5)), StateError);
}

TEST(StepInBackward, SecondDerivativesAreAnError) {
  Tensor w = tensor<double>({2});
  GradManager outer, gm;
  outer.attach(w);
  gm.attach(w, sgd_steps());
  auto enclosing = outer.record();
  auto recording = gm.record();
  EXPECT_THROW(gm.backward(sum(w * w)), StateError);
  EXPECT_THAT(values(w), ElementsAre(2));
}

TEST(StepInBackward, StatesAreSavedAndLoaded) {
  Net a, b;
  const auto of_a = adam_steps(), of_b = adam_steps();
  GradManager gm_a, gm_b;
  gm_a.attach(a.parameters(), of_a);
  gm_b.attach(b.parameters(), of_b);
  const auto step = [](GradManager& gm, const Net& net) {
    auto recording = gm.record();
    gm.backward(net.loss(1));
  };
  step(gm_a, a);
  of_b->load_state_dict(of_a->state_dict());
  for (int i = 0; i < 2; ++i) raw::copy_(b.parameters()[i], a.parameters()[i]);
  step(gm_a, a);
  step(gm_b, b);
  EXPECT_EQ(values(a.w), values(b.w));
  EXPECT_EQ(values(a.b), values(b.b));
  State state = of_a->state_dict();
  state.numbers.pop_back();
  EXPECT_THROW(of_b->load_state_dict(state), ValueError);
}

TEST(StepInBackward, ChecksOptimizersAndGradients) {
  Tensor w = tensor<double>({2}), other = tensor<double>({2});
  const auto attach = [&](StepInBackward::Factory factory) {
    GradManager().attach(w, std::make_shared<StepInBackward>(std::move(factory)));
  };
  EXPECT_THROW(attach([](const Tensor&) { return nullptr; }), ValueError);
  EXPECT_THROW(
      attach([&](const Tensor&) { return std::make_unique<SGD>(std::vector{other}, SGDOptions{.lr = 1}); }),
      ValueError);
  GradManager gm;
  gm.attach(w, sgd_steps());
  w.set_grad(other);
  auto recording = gm.record();
  EXPECT_THROW(gm.backward(sum(w)), StateError);
  EXPECT_THAT(values(w), ElementsAre(2));
}

TEST(StepInBackward, AFailedStepLeavesNoGradient) {
  const Tensor w = tensor<double>({2});
  GradManager gm;
  gm.attach(w, std::make_shared<StepInBackward>([](const Tensor& p) {
              return std::make_unique<LBFGS>(std::vector{p}, LBFGSOptions{});  // a step needs a closure
            }));
  for (int i = 0; i < 2; ++i) {
    auto recording = gm.record();
    try {
      gm.backward(sum(w));
      ADD_FAILURE() << "no error";
    } catch (const StateError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("closure"));
    }
    EXPECT_FALSE(w.grad().defined());
  }
}

}  // namespace
}  // namespace gradus::optim
