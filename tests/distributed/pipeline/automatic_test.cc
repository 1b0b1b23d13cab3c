// Stage boundaries (choose_cuts) and numbers of micro-batches that a Pipeline chooses by measuring: the
// choices for layers of known duration and memory, and training in f64 equal to that of one rank.
#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/internal/auto_cut.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/models/models.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using internal::CutChoice;
using internal::StagedModel;
using testing::ElementsAre;
using testing::HasSubstr;

// A linear layer whose forward also sleeps for of_call + of_row * rows.
struct Slow : nn::Layer {
  Slow(nn::Module* parent, std::string name, double of_call, double of_row = 0)
      : Layer(parent, std::move(name)), of_call(of_call), of_row(of_row) {}
  double of_call, of_row;  // milliseconds
  nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
  Tensor forward(const Tensor& x) override {
    if (x.device() == kCPU)
      std::this_thread::sleep_for(
          std::chrono::duration<double, std::milli>(of_call + of_row * double(x.size(0))));
    return fc(x);
  }
};

// The forwards of a, b, c sleep for kEach ms, that of d for kLast ms.
template <int kLast = 12, int kEach = 4> struct Uneven : nn::Layer {
  Slow a{this, "a", kEach}, b{this, "b", kEach}, c{this, "c", kEach}, d{this, "d", kLast};
  Tensor forward(const Tensor& x) override { return d(c(b(a(x)))); }
};

template <class M> StagedModel::Parts parts_of(const Tensor& example) {
  return {.make = [] { return std::unique_ptr<nn::Module>(std::make_unique<M>()); },
          .forward =
              [](nn::Module& model, std::span<const Tensor> inputs) {
                return std::vector<Tensor>{static_cast<M&>(model)(inputs[0])};
              },
          .inputs = {example}};
}

ActionLists lists_of(int ranks, Schedule schedule = Schedule::k1F1B) {
  return make_schedule(schedule, {.ranks = ranks, .micro_batches = 4});
}

TEST(AutomaticCuts, MakeTheSlowestStageFast) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [] {
      // 40 ms: no other layer is slower, even on a busy machine. Backwards do not sleep.
      const auto parts = parts_of<Uneven<40>>(random_tensor({2, 6}));
      const uint64_t before = Context::current().generator->state()[0];
      const CutChoice two = internal::choose_cuts(parts, lists_of(2), {});
      EXPECT_THAT(two.cut_after, ElementsAre("c"));
      EXPECT_THAT(internal::choose_cuts(parts, lists_of(3), {}).cut_after, ElementsAre(testing::_, "c"));
      EXPECT_EQ(two.stages.size(), 2u);
      for (const StageTimes& t : two.stages) {
        EXPECT_GE(t.forward, 0.012);
        EXPECT_GT(t.input_gradient + t.weight_gradient, 2e-6);
        EXPECT_LT(t.input_gradient + t.weight_gradient, 0.012);
      }
      EXPECT_EQ(Context::current().generator->state()[0], before);
    });
}

TEST(AutomaticCuts, KeepAMemoryLimit) {
  // Parameters are counted four times: 42 numbers of 4 bytes in each layer.
  const auto parts = parts_of<Uneven<>>(random_tensor({2, 6}));
  const int64_t layer = 4 * 42 * 4;
  const CutChoice half = internal::choose_cuts(parts, lists_of(2), {.memory_limit = 2 * layer + 20'000});
  EXPECT_EQ(half.cut_after.size(), 1u);
  EXPECT_ERROR(ValueError, internal::choose_cuts(parts, lists_of(2), {.memory_limit = layer}),
               "no cut into 2 stages keeps memory_limit = 672 bytes");
}

TEST(AutomaticCuts, KnowThatForwardsRunAgain) {
  // A wrong cut needs a sleep that is 12 ms too long.
  const auto parts = parts_of<Uneven<36, 12>>(random_tensor({1000, 6}));
  const CutChoice never = internal::choose_cuts(parts, lists_of(2), {});
  EXPECT_THAT(never.cut_after, ElementsAre("c"));
  // 48 ms each, instead of 72 and 36.
  EXPECT_THAT(internal::choose_cuts(parts, lists_of(2), {.recompute = Recompute::kExceptLast}).cut_after,
              ElementsAre("b"));

  // The first stage holds two micro-batches, of which each layer keeps its result.
  const double layer = never.stages[0].bytes / 3;
  const auto limited = [&](double layers) {
    return internal::choose_cuts(parts, lists_of(2),
                                 {.memory_limit = int64_t(layers * layer), .recompute = Recompute::kAuto});
  };
  EXPECT_THAT(limited(20).cut_after, ElementsAre("c"));
  EXPECT_THAT(limited(4.5).cut_after, ElementsAre("b"));
  EXPECT_FALSE(limited(4.5).stages[0].recomputed);
  EXPECT_THAT(limited(3.5).cut_after, ElementsAre("b"));
  EXPECT_TRUE(limited(3.5).stages[0].recomputed);
  EXPECT_FALSE(limited(3.5).stages[1].recomputed);
  EXPECT_THROW(limited(1), ValueError);
}

TEST(AutomaticCuts, TooManyStagesAreAnErrorThatListsThePlaces) {
  EXPECT_ERROR(ValueError, internal::choose_cuts(parts_of<Uneven<>>(random_tensor({2, 6})), lists_of(9), {}),
               "one that can be cut after: a b c d");
}

// Returns the loss of a step and all ranks' gradients by name. The cuts are chosen by measuring.
template <class Make>
std::map<std::string, std::vector<double>> trained(const Make& make, const Tensor& x, int ranks) {
  std::map<std::string, std::vector<double>> all;
  std::mutex mutex;
  run_ranks(ranks, [&] {
    manual_seed(3);
    Pipeline<typename decltype(make())::element_type> pipe(make, x, {.micro_batches = 1});
    EXPECT_EQ(pipe.stages(), ranks);
    GradManager gm;
    pipe.attach(gm);
    const double loss = pipe.step(gm, x, x, [](const Tensor& y, const Tensor&) { return sum(y * y); });
    EXPECT_THAT(pipe.describe(), HasSubstr(ranks > 1 ? "the slowest stage takes" : "stage 0"));
    const std::lock_guard lock(mutex);
    all["loss"] = {loss};
    for (const auto& [name, p] : pipe.named_parameters())
      if (p.grad().defined()) all[name] = p.grad().template to_vector<double>();
  });
  return all;
}

template <class Make> void expect_cut(const Make& make, const Shape& input) {
  const auto in_f64 = [&] {
    auto model = make();
    model->to(DType::kF64);
    return model;
  };
  const Tensor x = random_tensor(input, DType::kF64);
  const auto want = trained(in_f64, x, 1);
  for (const int ranks : {2, 4}) {
    const auto got = trained(in_f64, x, ranks);
    ASSERT_EQ(got.size(), want.size());
    // Relative to the largest of all gradients: those of biases before a norm are zero up to rounding.
    double largest = 0;
    for (const auto& [name, values] : want)
      for (double v : values) largest = std::max(largest, name == "loss" ? 0 : std::abs(v));
    for (const auto& [name, values] : want)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], 1e-12 * (name == "loss" ? std::abs(values[i]) : largest))
            << name << " on " << ranks << " ranks";
  }
}

template <class M, class Options> auto maker(const Options& options) {
  return [=] { return std::make_unique<M>(options); };
}

TEST(AutomaticCuts, CutEachModel) {
  using namespace models;
  expect_cut([] { return std::make_unique<MnistNet>(); }, {2, 1, 28, 28});
  expect_cut(maker<ResNet>(cifar_resnet(8)), {2, 3, 32, 32});
  expect_cut(maker<DCGANGenerator>(DCGANGeneratorOptions{.size = 16, .width = 4}), {2, 100});
  expect_cut(maker<DCGANDiscriminator>(DCGANDiscriminatorOptions{.size = 16, .width = 4}), {2, 3, 16, 16});
  expect_cut(maker<LSGANGenerator>(LSGANGeneratorOptions{.size = 32, .width = 8, .latent = 16}), {2, 16});
  expect_cut(maker<LSGANDiscriminator>(LSGANDiscriminatorOptions{.size = 32, .width = 4}), {2, 3, 32, 32});
  expect_cut(maker<WGANGPGenerator>(WGANGPGeneratorOptions{.size = 16, .latent = 8, .channel_base = 32}),
             {2, 8});
  expect_cut(maker<WGANGPDiscriminator>(WGANGPDiscriminatorOptions{.size = 16, .channel_base = 32}),
             {2, 3, 16, 16});
  expect_cut(maker<PGGANGenerator>(PGGANGeneratorOptions{.size = 16, .latent = 8, .channel_base = 32}),
             {2, 8});
  expect_cut(maker<PGGANDiscriminator>(PGGANDiscriminatorOptions{.size = 16, .channel_base = 32}),
             {4, 3, 16, 16});
}

TEST(AutomaticCuts, CutChains) {
  expect_cut(
      maker<nn::TransformerEncoder>(nn::TransformerEncoderOptions{
          .layer = {.d_model = 8, .nhead = 2, .dim_feedforward = 12, .batch_first = true}, .num_layers = 5}),
      {3, 4, 8});
  expect_cut(
      [] {
        auto chain = std::make_unique<nn::Sequential>();
        for (int i = 0; i < 3; ++i) {
          auto& inner = chain->template add<nn::Sequential>(std::vector<nn::LayerFactory>{});
          inner.template add<nn::Linear>({.in = 6, .out = 6});
          inner.template add<nn::Tanh>();
        }
        return chain;
      },
      {3, 6});
}

struct FixedCost : nn::Layer {
  Slow a{this, "a", 5}, b{this, "b", 5};
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};
struct CostByRow : nn::Layer {
  Slow a{this, "a", 0, 4}, b{this, "b", 0, 4};
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

// Trains on two ranks until the number of micro-batches is chosen. Returns the number.
template <class M> int chosen() {
  std::vector<int> numbers(2);
  run_ranks(2, [&] {
    Pipeline<M> pipe([] { return std::make_unique<M>(); }, random_tensor({2, 6}), {.cut_after = {"a"}});
    GradManager gm;
    pipe.attach(gm);
    for (int i = 0; i < 8; ++i) pipe.step(gm, random_tensor({16, 6}), random_tensor({16, 6}), nn::mse_loss);
    const std::string text = pipe.describe();
    EXPECT_THAT(text, HasSubstr("; ran in "));
    std::sscanf(text.c_str() + text.find("chosen: "), "chosen: %d micro-batches",
                &numbers[size_t(get_rank())]);
  });
  EXPECT_EQ(numbers[0], numbers[1]);
  return numbers[0];
}

TEST(AutomaticMicroBatches, FollowTheCosts) {
  EXPECT_EQ(chosen<FixedCost>(), 1);
  EXPECT_GE(chosen<CostByRow>(), 4);
}

TEST(AutomaticMicroBatches, KeepAMemoryLimit) {
  run_ranks(2, [] {
    Pipeline<FixedCost> pipe([] { return std::make_unique<FixedCost>(); }, random_tensor({2, 6}),
                             {.cut_after = {"a"}, .memory_limit = 100});
    GradManager gm;
    pipe.attach(gm);
    EXPECT_ERROR(ValueError, pipe.step(gm, random_tensor({16, 6}), random_tensor({16, 6}), nn::mse_loss),
                 "no number of micro-batches keeps memory_limit = 100 bytes");
  });
}

// The steps that measure train as all others do.
TEST(AutomaticMicroBatches, TrainTheUndividedModel) {
  const auto train = [](int ranks, PipelineOptions options) {
    std::map<std::string, std::vector<double>> all;
    std::mutex mutex;
    run_ranks(ranks, [&] {
      manual_seed(3);
      Pipeline<ResidualMLP> pipe(make_f64<ResidualMLP>, random_tensor({4, 6}, DType::kF64), options);
      GradManager gm;
      pipe.attach(gm);
      optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
      std::vector<double> losses;
      for (int i = 0; i < 9; ++i) {
        const int64_t rows = i == 4 ? 5 : 12;  // a smaller batch amid the trials
        losses.push_back(pipe.step(gm, random_tensor({rows, 6}, DType::kF64, 10 + i),
                                   random_tensor({rows, 3}, DType::kF64, 50 + i), nn::mse_loss));
        opt.step().clear_grad();
      }
      const std::lock_guard lock(mutex);
      all["losses"] = losses;
      for (const auto& [name, p] : pipe.named_parameters()) all[name] = p.template to_vector<double>();
    });
    return all;
  };
  const auto want = train(1, {.micro_batches = 1});
  for (const auto& options : {PipelineOptions{}, PipelineOptions{.micro_batch_size = 5},
                              PipelineOptions{.schedule = Schedule::kZeroBubbleH1}}) {
    const auto got = train(2, options);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, values] : want)
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(got.at(name)[i], values[i], 1e-12) << name;
  }
}

TEST(AutomaticMicroBatches, TrainingBesideEvaluationIsAnErrorOnAllRanks) {
  std::vector<std::string> heard(2);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(2,
                         [&] {
                           Pipeline<FixedCost> pipe([] { return std::make_unique<FixedCost>(); },
                                                    random_tensor({2, 6}), {.cut_after = {"a"}});
                           GradManager gm;
                           pipe.attach(gm);
                           try {
                             const Tensor x = random_tensor({16, 6});
                             if (get_rank() == 0)
                               pipe.eval_step(x, x, nn::mse_loss);
                             else
                               pipe.step(gm, x, x, nn::mse_loss);
                           } catch (const DistributedError& e) {
                             heard[size_t(get_rank())] = e.what();
                             throw;
                           }
                         }),
               std::exception);
  for (const std::string& text : heard) EXPECT_FALSE(text.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

}  // namespace
}  // namespace gradus::dist
