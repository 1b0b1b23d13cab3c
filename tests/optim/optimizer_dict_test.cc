// OptimizerDict: the optimizers of a GAN by name, each with its manager and options; state, and errors that
// change nothing.
#include "gradus/optim/optimizer_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/values.h"

namespace gradus::optim {
namespace {

using testing::ElementsAre;

struct Two {
  Tensor g = random_tensor({2}), d = random_tensor({3}), d2 = random_tensor({1});
  SGD gen{{g}, {.lr = 0.1, .momentum = 0.9}};
  Adam disc{{d}, {.lr = 0.2, .betas = {0.5, 0.9}}};
  OptimizerDict both{{"gen", gen}, {"disc", disc}};

  void step() {
    g.set_grad(random_tensor({2}, DType::kF32, 5));
    d.set_grad(random_tensor({3}, DType::kF32, 6));
    gen.step();
    disc.step();
  }
};

template <class T>
concept Steps = requires(T t) { t.step(); };
template <class T>
concept RunsBackward = requires(T t) { t.backward(Tensor()); };

TEST(OptimizerDict, HasNoStepAndNoBackwardOfAll) {
  static_assert(Steps<SGD> && !Steps<OptimizerDict> && !RunsBackward<OptimizerDict>);
}

TEST(OptimizerDict, GivesTheOptimizersByNameInTheOrderOfNaming) {
  Two two;
  EXPECT_EQ(&two.both["disc"].optimizer(), &two.disc);
  EXPECT_EQ(&two.both["gen"].optimizer(), &two.gen);
  EXPECT_TRUE(two.both.contains("gen"));
  EXPECT_FALSE(two.both.contains("ge"));
  EXPECT_EQ(two.both.size(), 2u);
  EXPECT_THAT(two.both.names(), ElementsAre("gen", "disc"));
  std::vector<const Optimizer*> seen;
  for (const auto& [name, wrapper] : two.both) seen.push_back(&wrapper->optimizer());
  EXPECT_THAT(seen, ElementsAre(&two.gen, &two.disc));
  EXPECT_ERROR(ValueError, two.both["critic"], "'critic'", "'gen' 'disc'");
}

TEST(OptimizerDict, RefusesNamesThatAStateCouldNotTellApart) {
  Two two;
  EXPECT_THROW((OptimizerDict{{"", two.gen}}), ValueError);
  EXPECT_THROW((OptimizerDict{{"a.b", two.gen}}), ValueError);
  EXPECT_THROW((OptimizerDict{{"a", two.gen}, {"a", two.disc}}), ValueError);
  EXPECT_ERROR(ValueError, (OptimizerDict{{"a", two.gen}, {"b", two.gen}}),
               "'a' and 'b' are the same optimizer");
}

// The loss is sum(p * slope), whose gradient is `slope`.
TEST(OptimizerDict, UpdatesTheParametersOfEachByItsOwnManagerAndOptions) {
  Two two;
  raw::fill_(two.g, 0);
  raw::fill_(two.d, 0);
  GradManager gm_g, gm_d;
  gm_g.attach(two.g);
  gm_d.attach(two.d);
  SGD disc({two.d}, {.lr = 1});
  OptimizerWrapper wrapper(disc, gm_d, {.accumulative_counts = 2});
  OptimizerDict optimizers{{"gen", two.gen, gm_g, {.clip_value = 0.5}}, {"disc", wrapper}};
  EXPECT_EQ(&optimizers["disc"], &wrapper);
  const auto update = [&](const std::string& name, const Tensor& p, double slope) {
    auto recording = optimizers[name].record();
    return optimizers[name].update_params(sum(p * slope));
  };
  EXPECT_TRUE(update("gen", two.g, 3));
  EXPECT_FALSE(update("disc", two.d, 1));
  EXPECT_TRUE(update("disc", two.d, 5));
  EXPECT_THAT(two.g.to_vector<float>(), testing::Each(-0.05f));
  EXPECT_THAT(two.d.to_vector<float>(), testing::Each(-3.f));

  EXPECT_FALSE(update("disc", two.d, 7));
  const State state = OptimizerDict{{"gen", two.gen}, {"disc", two.disc}}.state_dict();
  EXPECT_ERROR(StateError, optimizers.state_dict(), "'disc'", "1 batches");
  EXPECT_ERROR(StateError, optimizers.load_state_dict(state), "'disc'", "1 batches");
  optimizers.clear_grad();
  EXPECT_EQ(wrapper.accumulated(), 0);
  optimizers.load_state_dict(optimizers.state_dict());
}

TEST(OptimizerDict, StepsOptimizersThatHaveNoManager) {
  Two two;
  raw::fill_(two.g, 0);
  two.g.set_grad(ones({2}));
  two.both["gen"].step().clear_grad();
  EXPECT_THAT(two.g.to_vector<float>(), testing::Each(-0.1f));
  EXPECT_FALSE(two.g.grad().defined());
  EXPECT_ERROR(StateError, (void)two.both["gen"].record(), "GradManager");
}

TEST(OptimizerDict, ClearsTheGradientsOfAll) {
  Two two;
  two.step();
  two.both.clear_grad();
  EXPECT_FALSE(two.g.grad().defined());
  EXPECT_FALSE(two.d.grad().defined());
}

TEST(OptimizerDict, TellsRatesAndMomentaOfEachGroup) {
  Two two;
  two.disc.add_param_group({two.d2}, {.lr = 0.3});
  EXPECT_THAT(two.both.lr().at("gen"), ElementsAre(0.1));
  EXPECT_THAT(two.both.lr().at("disc"), ElementsAre(0.2, 0.3));
  EXPECT_THAT(two.both.momentum().at("gen"), ElementsAre(0.9));
  EXPECT_THAT(two.both.momentum().at("disc"), ElementsAre(0.5, 0.9));
}

TEST(OptimizerDict, GoesOnFromItsStateExactly) {
  Two two, resumed;
  two.step();
  two.disc.set_lr(0.7);
  raw::copy_(resumed.g, two.g);
  raw::copy_(resumed.d, two.d);
  resumed.both.load_state_dict(two.both.state_dict());
  EXPECT_EQ(resumed.disc.lr(), 0.7);
  two.step();
  resumed.step();
  EXPECT_EQ(resumed.g.to_vector<float>(), two.g.to_vector<float>());
  EXPECT_EQ(resumed.d.to_vector<float>(), two.d.to_vector<float>());
}

TEST(OptimizerDict, StateNamesStartWithTheOptimizers) {
  Two two;
  two.step();
  std::vector<std::string> names;
  for (const auto& [name, t] : two.both.state_dict().tensors) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("gen.state.0.momentum_buffer", "disc.state.0.exp_avg", "disc.state.0.exp_avg_sq"));
}

TEST(OptimizerDict, AStateThatDoesNotFitChangesNothing) {
  Two two, other;
  other.step();
  other.both.clear_grad();
  State unexpected = other.both.state_dict();
  unexpected.numbers.emplace_back("critic.lr", 1);
  EXPECT_ERROR(ValueError, two.both.load_state_dict(unexpected), "critic.lr");

  State incomplete = other.both.state_dict();
  std::erase_if(incomplete.numbers, [](const auto& entry) { return entry.first == "disc.group.0.lr"; });
  EXPECT_ERROR(ValueError, two.both.load_state_dict(incomplete), "missing: disc.group.0.lr");
  EXPECT_TRUE(two.gen.state_dict().tensors.empty()) << "the first optimizer keeps what it had";

  for (auto& [name, v] : incomplete.numbers)
    if (name == "gen.group.0.lr") v = -1;
  EXPECT_ERROR(ValueError, two.both.load_state_dict(incomplete),
               "gen.group.0: [SGD] expected lr >= 0, got -1", "missing: disc.group.0.lr");
}

}  // namespace
}  // namespace gradus::optim
