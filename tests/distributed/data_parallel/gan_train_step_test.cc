// A DCGAN whose training step is its own: train_step(batch, optimizers), called through the wrapper, with
// update_params of optimizers by name. Several ranks against one process, accumulation, state, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/data/dataset.h"
#include "gradus/distributed/data_parallel/separate_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/models/models.h"
#include "gradus/optim/optimizer_dict.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/golden/uniform.h"
#include "gradus/train/gan/gan.h"
#include "gradus/train/training_state.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 8;  // of all ranks
constexpr int64_t kLatent = 6;
constexpr int kSteps = 6;
// Sums over the batch in another order round by about 1e-16 of a gradient. Adam's eps of 1e-3 keeps a step's
// error below lr / eps times that, and the steps amplify it some hundred times.
constexpr double kTolerance = 1e-10;

struct Log {
  Tensor loss_d, loss_g;
};

// A batch's target has the latents of its samples: those of the discriminator's step, then those of the
// generator's. So any number of ranks trains on the same.
struct Gan : nn::Module {
  models::DCGANGenerator gen{this, "gen", {.size = 16, .channels = 1, .width = 2, .latent = kLatent}};
  models::DCGANDiscriminator disc{this, "disc", {.size = 16, .channels = 1, .width = 2}};

  Log train_step(const data::Batch& batch, optim::OptimizerDict& optim) {
    Log log;
    {
      auto recording = optim["disc"].record();
      log.loss_d = loss_d(batch);
      optim["disc"].update_params(log.loss_d);
    }
    {
      auto recording = optim["gen"].record();
      log.loss_g = loss_g(batch);
      optim["gen"].update_params(log.loss_g);
    }
    return log;
  }

  Tensor loss_d(const data::Batch& batch) {
    const Tensor fake = gen(narrow(batch.target, 1, 0, kLatent));
    const Tensor real_scores = disc(batch.input), fake_scores = disc(fake);
    return gan::vanilla_d(real_scores, fake_scores);
  }
  Tensor loss_g(const data::Batch& batch) {
    return gan::vanilla_g(disc(gen(narrow(batch.target, 1, kLatent, kLatent))));
  }
};

// This rank's samples of part `part` of `parts` of a batch made by formula.
data::Batch batch_of(int number, int part = 0, int parts = 1, bool alone = false) {
  const int world = alone ? 1 : get_world_size(), rank = alone ? 0 : get_rank();
  const auto samples = [&](const std::string& name, const Shape& sample, double scale) {
    Shape shape = {kBatch}, split = {parts, kBatch / parts / world, world};
    for (const int64_t size : sample) shape.push_back(size), split.push_back(size);
    std::vector<double> v = golden::uniform(name + std::to_string(number), shape.product());
    for (double& x : v) x *= scale;
    return contiguous(select(select(reshape(tensor(v, shape), split), 0, part), 1, rank));
  };
  return {.input = samples("real", {1, 16, 16}, 1), .target = samples("z", {2 * kLatent}, 2)};
}

using State = std::map<std::string, std::vector<double>>;

struct Training {
  // Within a job the networks are wrapped; `alone`: no wrapper, one process.
  explicit Training(bool alone, int64_t accumulative_counts = 1) {
    net.to(DType::kF64);
    for (const auto& [name, p] : net.named_parameters()) {  // only rank 0's weights count
      std::vector<double> v = golden::uniform(name, p.numel());
      const double scale = p.dim() > 1 ? 1 / std::sqrt(double(p.numel() / p.size(0))) : 0.125;
      for (double& x : v)
        x = scale * x + (p.dim() == 1 && name.ends_with("weight") ? 1 : 0) + (alone ? 0 : 0.1 * get_rank());
      copy_(p, tensor(v, p.shape()));
    }
    optim::OptimizerWrapperOptions options = {.accumulative_counts = accumulative_counts};
    if (alone) {
      gm_d.attach(net.disc.parameters());
      gm_g.attach(net.gen.parameters());
    } else {
      convert_sync_batchnorm(net);
      ddp = std::make_unique<SeparateDistributedDataParallel<Gan>>(net);
      ddp->attach(gm_d, net.disc);
      ddp->attach(gm_g, net.gen);
      options.no_sync = [this] { return ddp->no_sync(); };
    }
    const optim::AdamOptions adam = {.lr = 1e-3, .betas = {0.5, 0.99}, .eps = 1e-3};
    opt_d.emplace(net.disc.parameters(), adam);
    opt_g.emplace(net.gen.parameters(), adam);
    optim.emplace(std::initializer_list<optim::OptimizerDict::Entry>{{"disc", *opt_d, gm_d, options},
                                                                     {"gen", *opt_g, gm_g, options}});
  }

  Log step(const data::Batch& batch) {
    return ddp ? ddp->train_step(batch, *optim) : net.train_step(batch, *optim);
  }

  // All of the state: parameters and buffers, optimizers.
  State state() const {
    State all;
    for (const auto& [name, t] : net.state_dict()) all[name] = t.to_vector<double>();
    const optim::State s = optim->state_dict();
    for (const auto& [name, t] : s.tensors) all[name] = t.to_vector<double>();
    for (const auto& [name, number] : s.numbers) all[name] = {number};
    return all;
  }

  Gan net;
  GradManager gm_d, gm_g;
  std::unique_ptr<SeparateDistributedDataParallel<Gan>> ddp;
  std::optional<optim::Adam> opt_d, opt_g;
  std::optional<optim::OptimizerDict> optim;
};

// What is off by more than the tolerance; "" for nothing.
std::string difference(const State& state, const State& expected) {
  std::string wrong;
  for (const auto& [name, values] : expected) {
    const auto at = state.find(name);
    double largest = at == state.end() || at->second.size() != values.size() ? INFINITY : 0;
    for (size_t i = 0; i < values.size() && std::isfinite(largest); ++i)
      largest = std::max(largest, std::isfinite(values[i]) ? std::abs(at->second[i] - values[i]) : INFINITY);
    if (!(largest <= kTolerance)) wrong += name + " is off by " + std::to_string(largest * 1e10) + "e-10\n";
  }
  if (state.size() != expected.size()) wrong += "the state has other tensors\n";
  return wrong;
}

class GanTrainStep : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GanTrainStep, testing::Values(2, 4));

TEST_P(GanTrainStep, RanksComeToWhatTheJoinedBatchGives) {
  Training one(true);
  const State before = one.state();
  std::vector<double> losses;
  for (int i = 0; i < kSteps; ++i) {
    const Log log = one.step(batch_of(i, 0, 1, true));
    losses.push_back(log.loss_d.item<double>());
    losses.push_back(log.loss_g.item<double>());
  }
  const State expected = one.state();
  for (const auto& [name, t] : one.net.named_parameters())
    EXPECT_NE(before.at(name), expected.at(name)) << name << " is trained";

  std::vector<double> sums(losses.size());
  std::mutex adding;
  run_ranks(GetParam(), [&] {
    Training ranks(false);
    for (int i = 0; i < kSteps; ++i) {
      const Log log = ranks.step(batch_of(i));
      const std::lock_guard lock(adding);
      sums[2 * i] += log.loss_d.item<double>() / GetParam();
      sums[2 * i + 1] += log.loss_g.item<double>() / GetParam();
    }
    EXPECT_EQ(difference(ranks.state(), expected), "") << "rank " << get_rank();
    EXPECT_EQ(ranks.ddp->stats(ranks.net.disc).backwards, kSteps);
    EXPECT_EQ(ranks.ddp->stats(ranks.net.gen).backwards, kSteps);
  });
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(sums[i], losses[i], kTolerance) << i;
}

// With batch norm over all ranks, both accumulate the same batches.
TEST_P(GanTrainStep, AccumulatesAndCommunicatesOncePerStep) {
  Training one(true, 2);
  for (int i = 0; i < kSteps; ++i) one.step(batch_of(i / 2, i % 2, 2, true));
  const State expected = one.state();
  run_ranks(GetParam(), [&] {
    Training ranks(false, 2);
    for (int i = 0; i < kSteps; ++i) ranks.step(batch_of(i / 2, i % 2, 2));
    EXPECT_EQ(difference(ranks.state(), expected), "") << "rank " << get_rank();
    EXPECT_EQ(ranks.ddp->stats(ranks.net.disc).backwards, kSteps / 2);
    EXPECT_EQ(ranks.ddp->stats(ranks.net.gen).backwards, kSteps / 2);
  });
}

// Batch norm would look at each half by itself, so it takes its running statistics. The generator's batches
// follow the discriminator's step, as in a step of the joined batch.
TEST_P(GanTrainStep, TwoHalvesAccumulatedAreAStepOfTheJoinedBatch) {
  Training one(true);
  one.net.eval();
  for (int i = 0; i < kSteps; ++i) one.step(batch_of(i, 0, 1, true));
  const State expected = one.state();
  const auto halves = [&](bool alone) {
    Training t(alone, 2);
    t.net.eval();
    optim::OptimizerDict& optim = *t.optim;
    for (int i = 0; i < kSteps; ++i) {
      for (const int half : {0, 1}) {
        auto recording = optim["disc"].record();
        EXPECT_EQ(optim["disc"].update_params(t.net.loss_d(batch_of(i, half, 2, alone))), half == 1);
      }
      for (const int half : {0, 1}) {
        auto recording = optim["gen"].record();
        EXPECT_EQ(optim["gen"].update_params(t.net.loss_g(batch_of(i, half, 2, alone))), half == 1);
      }
    }
    EXPECT_EQ(difference(t.state(), expected), "");
  };
  halves(true);
  run_ranks(GetParam(), [&] { halves(false); });
}

TEST_P(GanTrainStep, SavesBetweenStepsAndRefusesToWithinOne) {
  const std::string file = testing::TempDir() + "gan_train_step_" + std::to_string(GetParam()) + ".ckpt";
  std::filesystem::remove(file);
  State expected;
  const std::vector<std::string> errors = errors_of(GetParam(), [&] {
    Training t(false, 2);
    const TrainingState parts{{"net", t.net}, {"optimizers", *t.optim}};
    for (int i = 0; i < 2; ++i) t.step(batch_of(0, i, 2));
    parts.save(file);
    for (int i = 0; i < 2; ++i) t.step(batch_of(1, i, 2));
    const State state = t.state();
    if (get_rank() == 0) expected = state;
    t.step(batch_of(2, 0, 2));
    EXPECT_THROW(t.optim->load_state_dict({}), StateError);
    parts.save(file);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("'disc'"), HasSubstr("of 1 batch"), HasSubstr("between two steps")));

  run_ranks(GetParam(), [&] {
    Training t(false, 2);
    TrainingState({{"net", t.net}, {"optimizers", *t.optim}}).load(file);
    for (int i = 0; i < 2; ++i) t.step(batch_of(1, i, 2));
    EXPECT_EQ(t.state(), expected) << "the file is the first one, and the same bits follow";
  });
}

// ---- one rank throws ----

struct Fault {
  std::string where, text;
  std::function<void(Training& t, std::function<void()> now)> prepare;
};

// In update_params: before the backward, within it, and in the step.
const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"TheLoss", "one element",
       [](Training& t, const std::function<void()>& now) {
         auto recording = (*t.optim)["disc"].record();
         const Tensor loss = t.net.loss_d(batch_of(1));
         now();
         (*t.optim)["disc"].update_params(stack({loss, loss}));
       }},
      {"TheBackward", "no gradient today",
       [](Training& t, const std::function<void()>& now) {
         t.gm_g.attach(t.net.gen.parameters(), [now](const Tensor&, const Tensor&) -> Tensor {
           now();
           throw ValueError("callback", "no gradient today");
         });
         t.step(batch_of(1));
       }},
      {"TheStep", "scaler", [](Training& t, const std::function<void()>& now) {
         optim::GradScaler scaler({.init_scale = 2});
         optim::OptimizerWrapper scaled(*t.opt_d, t.gm_d, {.scaler = &scaler});
         {
           auto recording = scaled.record();
           t.gm_d.backward(t.net.loss_d(batch_of(1)));  // not of the scaler
         }
         now();
         scaled.step();
       }}};
  return all;
}

class ThrowingTrainStep : public testing::TestWithParam<std::tuple<int, size_t>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThrowingTrainStep,
                         testing::Combine(testing::Values(2, 4), testing::Range<size_t>(0, faults().size())),
                         [](const auto& info) {
                           return faults()[std::get<1>(info.param)].where +
                                  std::to_string(std::get<0>(info.param)) + "Ranks";
                         });

TEST_P(ThrowingTrainStep, EndsOnAllRanksWithinTwoSeconds) {
  const auto [world, fault] = GetParam();
  std::atomic<Clock::time_point> thrown{};
  const std::vector<std::string> errors =
      errors_of(world,
                [&, fault = fault] {
                  Training t(false);
                  t.step(batch_of(0));
                  if (get_rank() == 1) faults()[fault].prepare(t, [&] { thrown = Clock::now(); });
                  for (int i = 1; i < kSteps; ++i) t.step(batch_of(i));
                },
                {.timeout = Milliseconds(60'000)});
  ASSERT_NE(thrown.load(), Clock::time_point());
  EXPECT_LT(Clock::now() - thrown.load(), std::chrono::seconds(2));
  for (int rank = 0; rank < world; ++rank)
    EXPECT_THAT(errors[rank], HasSubstr(rank == 1 ? faults()[fault].text : "rank 1")) << rank;
}

}  // namespace
}  // namespace gradus::dist
