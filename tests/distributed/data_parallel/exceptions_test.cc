// An exception of one rank reaches the others at once, wherever it is thrown. No destructor that it passes
// waits for the other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Far above the 10 seconds that the tests allow: no error may come from a timeout.
constexpr RunRanksOptions kLong{.timeout = Milliseconds(60'000)};

struct Net : nn::Layer {
  nn::Linear first{this, "first", {.in = 3, .out = 4}};
  nn::BatchNorm1d norm{this, "norm", {.features = 4}};
  Tensor forward(const Tensor& x) override { return norm(first(x)); }
};

TEST(Exceptions, OfAForwardReachRanksThatWaitInSyncBatchNorm) {
  const Clock::time_point begin = Clock::now();
  const auto errors = errors_of(
      2,
      [] {
        Net net;
        convert_sync_batchnorm(net);
        DistributedDataParallel ddp(net);
        GradManager gm;
        ddp.attach(gm);
        for (int step = 0; step < 4; ++step) {
          auto recording = gm.record();
          gm.backward(sum(ddp(ones({2, step == 2 && get_rank() == 1 ? 4 : 3}))));
        }
      },
      kLong);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 failed: ShapeError: in first: [linear] weight takes 3"));
}

// Calls without a wait outlive their group. A rank that returns lets its calls complete.
TEST(Exceptions, CallsOutliveTheirGroup) {
  run_ranks(
      3,
      [] {
        Tensor x = full({1000}, get_rank());
        Work work;
        {
          const Group own = world().duplicate();
          if (get_rank() == 2) std::this_thread::sleep_for(Milliseconds(50));
          work = all_reduce(x, {.group = own, .async_op = true});
        }
        work.wait();
        EXPECT_EQ(x.to_vector<float>()[0], 3);
        const Group own = world().duplicate();
        if (get_rank() == 0) std::this_thread::sleep_for(Milliseconds(50));
        all_reduce(x, {.group = own, .async_op = true});
      },
      kLong);
}

// ---- random trainings ----

constexpr int kSteps = 6;
constexpr const char* kText = "thrown on purpose";

struct Strange {};  // no std::exception

struct DeepNet : nn::Layer {
  nn::Linear first{this, "first", {.in = 3, .out = 4}};
  nn::BatchNorm1d norm{this, "norm", {.features = 4}};
  nn::Linear last{this, "last", {.in = 4, .out = 1}};
  Tensor forward(const Tensor& x) override { return last(relu(norm(first(x)))); }
};

// The identity; its backward calls `called`.
struct InBackward : autograd::Function {
  explicit InBackward(std::function<void()> called) : called(std::move(called)) {}
  std::vector<Tensor> forward(const std::vector<Tensor>& x) override { return {x[0] + 0}; }
  std::vector<Tensor> backward(std::vector<Tensor> dy) override {
    called();
    return dy;
  }
  std::function<void()> called;
};

template <class... Names> std::string name_in(size_t i, Names... names) {
  const char* const all[] = {names...};
  return all[i];
}

// A small training on several ranks in which one rank, the victim, throws at a random place of a step.
struct ThrowingTraining {
  enum Wrapper { kWhole, kSeparate, kCallback, kWrappers };
  enum Place { kLoading, kForward, kLoss, kBeforeBackward, kBackward, kGradCallback, kStep, kPlaces };
  enum Thrown { kShapeError, kRuntimeError, kOther, kThrowns };
  // Where the victim catches its exception: nowhere; around the step (kInStep) or around train() (kOutside),
  // to rethrow it; around the step, to continue with the next batch; around train(), to return normally.
  enum Caught { kNot, kInStep, kOutside, kGoesOn, kReturns, kCaughts };

  int world = 2;
  Wrapper wrapper = kWhole;
  bool sync_batch_norm = false;
  bool metric = false;  // an all-reduce of the loss between forward and backward
  int victim = 0, step = 0;
  Place place = kForward;
  Thrown thrown = kShapeError;
  Caught caught = kNot;

  static ThrowingTraining random(uint64_t seed, int world);
  // "2 ranks, whole, SyncBatchNorm, metric: rank 1 throws ShapeError in forward of step 3, not caught"
  std::string text() const;

  // The training, on every rank of a job. `on_fault` is called where the exception is about to be thrown.
  void run(const std::function<void()>& on_fault) const;
  // What is wrong with the error of a rank other than the victim, "" for nothing. `named`: the rank that the
  // error names; `text`: its text, "" if there was no error.
  std::string judge(int named, const std::string& text) const;

 private:
  void train(const std::function<void()>& on_fault) const;
  bool in_backward() const { return place == kBackward || place == kGradCallback; }
};

ThrowingTraining ThrowingTraining::random(uint64_t seed, int world) {
  std::mt19937_64 random(seed * 7919 + uint64_t(world));
  const auto below = [&](int n) { return int(random() % uint64_t(n)); };
  ThrowingTraining t;
  t.world = world;
  t.wrapper = Wrapper(below(kWrappers));
  t.sync_batch_norm = below(2);
  t.metric = below(2);
  t.victim = below(world);
  t.step = below(kSteps);
  t.place = Place(below(kPlaces));
  t.thrown = Thrown(below(kThrowns));
  t.caught = Caught(below(kCaughts));
  // Not tested here: check_divergence_every finds weights that one rank did not update, and the end of the
  // job a rank that ran fewer backwards.
  if ((t.place == kStep || t.place == kLoading) && t.caught == kGoesOn) t.caught = kInStep;
  return t;
}

std::string ThrowingTraining::text() const {
  return concat(world, " ranks, ", name_in(wrapper, "whole", "separate", "callback"),
                sync_batch_norm ? ", SyncBatchNorm" : "", metric ? ", metric" : "", ": rank ", victim,
                " throws ", name_in(thrown, "ShapeError", "runtime_error", "a strange type"), " in ",
                name_in(place, "loading", "forward", "loss", "before backward", "backward", "a callback",
                        "the optimizer"),
                " of step ", step, ", ",
                name_in(caught, "not caught", "thrown again in the step", "thrown again outside",
                        "caught to go on", "caught to return"));
}

void ThrowingTraining::run(const std::function<void()>& on_fault) const {
  if (caught != kOutside && caught != kReturns) return train(on_fault);
  try {
    train(on_fault);
  } catch (const Error&) {
    if (caught == kOutside || get_rank() != victim) throw;
  } catch (...) {
    if (caught == kOutside) throw;
  }
}

void ThrowingTraining::train(const std::function<void()>& on_fault) const {
  DeepNet net;
  if (sync_batch_norm) convert_sync_batchnorm(net);
  GradManager gm;
  int now = 0;
  const auto perhaps = [&](Place here) {
    if (here != place || now != step || get_rank() != victim) return;
    on_fault();
    if (thrown == kShapeError) throw ShapeError("training", kText);
    if (thrown == kRuntimeError) throw std::runtime_error(kText);
    throw Strange();
  };
  const Callback late = [&](const Tensor&, const Tensor& g) {
    perhaps(kGradCallback);
    return g;
  };
  std::optional<DistributedDataParallel<DeepNet>> whole;
  std::optional<SeparateDistributedDataParallel<DeepNet>> separate;
  if (wrapper == kWhole) {
    whole.emplace(net);
    whole->attach(gm, late);
  } else if (wrapper == kSeparate) {
    separate.emplace(net);
    separate->attach(gm, late);
  } else {
    gm.attach(net.parameters(), {make_allreduce_cb("mean"), late});
  }
  optim::SGD opt(net.parameters(), {.lr = 0.1});

  const auto one_step = [&] {
    perhaps(kLoading);
    const Tensor x = full({2 + get_rank(), 3}, now + 1);
    auto recording = gm.record();
    perhaps(kForward);
    const auto in_backward = std::make_shared<InBackward>([&] { perhaps(kBackward); });
    const Tensor y = autograd::apply(in_backward, {net(x)})[0];
    perhaps(kLoss);
    const Tensor loss = mean(square(y));
    if (metric) all_reduce(detach(loss) * 1, {.op = ReduceOp::kAvg});
    perhaps(kBeforeBackward);
    gm.backward(loss);
    perhaps(kStep);
    opt.step().clear_grad();
  };
  for (; now < kSteps; ++now) {
    if (caught != kInStep && caught != kGoesOn) {
      one_step();
      continue;
    }
    try {
      one_step();
    } catch (...) {
      if (caught == kInStep || get_rank() != victim || now != step) throw;
    }
  }
  // Without an error, all ranks have the same weights.
  std::string mine;
  for (const Tensor& p : net.parameters())
    for (const double v : p.to_vector<double>()) mine += concat(v, ' ');
  for (const std::string& remote : all_gather_object(mine))
    if (remote != mine) throw StateError("training", "the ranks' weights differ");
}

std::string ThrowingTraining::judge(int named, const std::string& text) const {
  // A step that one rank drops is dropped by all, unless another collective of the step waits for that rank.
  const bool may_end_well =
      caught == kGoesOn && !in_backward() && !sync_batch_norm && (!metric || place == kBeforeBackward);
  if (text.empty()) return may_end_well ? "" : "no error";
  if (named != victim) return concat("names rank ", named);
  const std::string rank = concat("rank ", victim);
  const auto says = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  if (!says(rank)) return "does not name the rank";
  const bool known = in_backward() || caught == kNot || caught == kInStep || caught == kOutside;
  if (!known) return "";
  const std::string type = name_in(thrown, "ShapeError", "runtime_error", "Strange");
  if (!says(type)) return "does not name the type";
  if (thrown != kOther && !says(kText)) return "does not tell the exception's text";
  return "";
}

class ThrowingTrainings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Random, ThrowingTrainings, testing::Values(2, 3, 4));

TEST_P(ThrowingTrainings, AreErrorsThatNameTheRankTheTypeAndTheText) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ThrowingTraining training = ThrowingTraining::random(seed, GetParam());
    const int hosts = seed % 3 == 2 ? 2 : 1;  // else shared memory (seed % 3 == 0) or messages on one host
    std::vector<std::string> texts(GetParam());
    std::vector<int> named(GetParam(), -1);
    std::atomic<Clock::time_point> fault{Clock::now()};
    try {
      run_ranks(GetParam(),
                [&] {
                  try {
                    training.run([&] { fault = Clock::now(); });
                  } catch (const DistributedError& error) {
                    texts[get_rank()] = error.what();
                    named[get_rank()] = error.rank();
                    throw;
                  } catch (const Error& error) {
                    if (get_rank() != training.victim) texts[get_rank()] = error.what();
                    throw;
                  }
                },
                {.timeout = kLong.timeout, .messages_only = seed % 3 == 1, .hosts = hosts});
    } catch (...) {
    }
    EXPECT_LT(Clock::now() - fault.load(), std::chrono::seconds(10)) << training.text();
    for (int rank = 0; rank < GetParam(); ++rank) {
      if (rank == training.victim) continue;
      EXPECT_EQ(training.judge(named[rank], texts[rank]), "")
          << "seed " << seed << ": " << training.text() << "\nrank " << rank << ": " << texts[rank];
    }
  }
}

}  // namespace
}  // namespace gradus::dist
