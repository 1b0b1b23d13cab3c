// Recomputation: the same numbers from less memory.
#include "gradus/distributed/pipeline/recompute.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gradus/autograd/graph/recomputing.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/nn/reparametrize.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"

namespace gradus::dist {
namespace {

// Dropout, batch norm and clipping included.
TEST(Recompute, GivesTheSameBits) {
  const auto want = train_unet(1, {.micro_batches = 4});
  for (const Recompute recompute : {Recompute::kAlways, Recompute::kExceptLast}) {
    for (const int ranks : {1, 2, 4})
      for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1})
        EXPECT_EQ(train_unet(ranks, {.schedule = schedule, .micro_batches = 4, .recompute = recompute}), want)
            << name_of(schedule) << " P " << ranks;
    for (const Schedule schedule : {Schedule::kInterleaved1F1B, Schedule::kZeroBubbleV})
      EXPECT_EQ(
          train_unet(3, {.interleave = 2, .schedule = schedule, .micro_batches = 4, .recompute = recompute}),
          want)
          << name_of(schedule);
  }
}

// Each forward takes one step of the power iteration.
struct Spectral : nn::Layer {
  nn::Linear a{this, "a", {.in = 8, .out = 8}}, b{this, "b", {.in = 8, .out = 8}};
  Spectral() { nn::spectral_norm(a), nn::spectral_norm(b); }
  Tensor forward(const Tensor& x) override { return b(tanh(a(x))); }
};

TEST(Recompute, SeesTheStateOfTheFirstForward) {
  run_ranks(2, [] {
    std::vector<std::vector<double>> grads[2];
    for (const Recompute recompute : {Recompute::kNever, Recompute::kAlways}) {
      manual_seed(5);
      Pipeline<Spectral> pipe(
          [] { return std::make_unique<Spectral>(); }, zeros({2, 8}),
          {.schedule = Schedule::kGPipe, .micro_batches = 4, .cut_after = {"a"}, .recompute = recompute});
      GradManager gm;
      pipe.attach(gm);
      pipe.step(gm, random_tensor({8, 8}), zeros({8, 8}), nn::mse_loss);
      for (const Tensor& p : pipe.parameters())
        grads[recompute == Recompute::kAlways].push_back(p.grad().to_vector<double>());
      for (const Tensor& u : pipe.module().buffers())
        if (u.device() == kCPU) grads[recompute == Recompute::kAlways].push_back(u.to_vector<double>());
    }
    EXPECT_EQ(grads[0], grads[1]);
    EXPECT_EQ(grads[0].size(), 4u);
  });
}

// Counts its forwards.
struct Counted : nn::Layer {
  using Layer::Layer;
  nn::Linear fc{this, "fc", {.in = 8, .out = 8}};
  std::atomic<int> first{0}, again{0};
  Tensor forward(const Tensor& x) override {
    if (x.device() == kCPU) ++(autograd::is_recomputing() ? again : first);
    return tanh(fc(x));
  }
};
struct TwoCounted : nn::Layer {
  Counted a{this, "a"}, b{this, "b"};
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

// Returns how often the layers of each rank ran for the first time, and again.
std::vector<std::pair<int, int>> runs(Schedule schedule, Recompute recompute) {
  std::vector<std::pair<int, int>> of_rank(2);
  run_ranks(2, [&] {
    Pipeline<TwoCounted> pipe(
        [] { return std::make_unique<TwoCounted>(); }, zeros({2, 8}),
        {.schedule = schedule, .micro_batches = 4, .cut_after = {"a"}, .recompute = recompute});
    GradManager gm;
    pipe.attach(gm);
    pipe.step(gm, ones({8, 8}), zeros({8, 8}), nn::mse_loss);
    const Counted& mine = get_rank() == 0 ? pipe.module().a : pipe.module().b;
    of_rank[size_t(get_rank())] = {mine.first.load(), mine.again.load()};
    const Counted& other = get_rank() == 0 ? pipe.module().b : pipe.module().a;
    EXPECT_EQ(other.first + other.again, 0);
  });
  return of_rank;
}

TEST(Recompute, RunsForwardsAgainWhereAsked) {
  using Runs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(runs(Schedule::k1F1B, Recompute::kNever), (Runs{{4, 0}, {4, 0}}));
  EXPECT_EQ(runs(Schedule::k1F1B, Recompute::kAlways), (Runs{{4, 4}, {4, 4}}));
  // A backward in two parts needs one run.
  EXPECT_EQ(runs(Schedule::kZeroBubbleH1, Recompute::kAlways), (Runs{{4, 4}, {4, 4}}));
  // On the last rank each backward follows its forward.
  EXPECT_EQ(runs(Schedule::k1F1B, Recompute::kExceptLast), (Runs{{4, 4}, {4, 0}}));
  EXPECT_EQ(runs(Schedule::kZeroBubbleH1, Recompute::kExceptLast), (Runs{{4, 4}, {4, 0}}));
  EXPECT_EQ(runs(Schedule::kGPipe, Recompute::kExceptLast), (Runs{{4, 4}, {4, 4}}));
  // The newest micro-batch is the first to go back.
  EXPECT_EQ(runs(Schedule::kGPipeLIFO, Recompute::kExceptLast), (Runs{{4, 3}, {4, 3}}));
}

// The last rank's loss is there only when the first rank has begun to run its forward again.
TEST(Recompute, RunsWhileTheRankWaitsForItsGradient) {
  std::atomic<int> again{0};
  run_ranks(2, [&] {
    Pipeline<TwoCounted> pipe([] { return std::make_unique<TwoCounted>(); }, zeros({2, 8}),
                              {.micro_batches = 1, .cut_after = {"a"}, .recompute = Recompute::kAlways});
    pipe.module().a.fc.register_forward_hook([&](nn::Layer&, const Tensor& x, const Tensor&) {
      if (x.device() == kCPU && autograd::is_recomputing()) ++again;
    });
    GradManager gm;
    pipe.attach(gm);
    pipe.step(gm, ones({8, 8}), zeros({8, 8}), [&](const Tensor& y, const Tensor& t) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (again == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      EXPECT_GT(again, 0);
      return nn::mse_loss(y, t);
    });
  });
}

// Of each layer, a backward needs the input and the tanh: 16 tensors.
struct Wide : nn::Layer {
  std::vector<std::unique_ptr<nn::Linear>> layers;
  Wide() {
    for (int i = 0; i < 8; ++i)
      layers.push_back(
          std::make_unique<nn::Linear>(this, concat("fc", i), nn::LinearOptions{.in = 128, .out = 128}));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& fc : layers) y = y + tanh((*fc)(y));
    return y;
  }
};

// Returns the most bytes that a step takes beside parameters, their gradients and the batch.
int64_t bytes_of_a_step(int micro_batches, Recompute recompute) {
  Pipeline<Wide> pipe([] { return std::make_unique<Wide>(); }, zeros({2, 128}),
                      {.schedule = Schedule::kGPipe, .micro_batches = micro_batches, .recompute = recompute});
  GradManager gm;
  pipe.attach(gm);
  const Tensor x = ones({128 * micro_batches, 128}), t = zeros({128 * micro_batches, 128});
  pipe.step(gm, x, t, nn::mse_loss);
  const int64_t before = memory_stats().live_bytes;
  reset_peak_memory();
  pipe.step(gm, x, t, nn::mse_loss);
  return memory_stats().peak_bytes - before;
}

// All forwards come before the first backward.
TEST(Recompute, HoldsOneMicroBatchInsteadOfAll) {
  const int64_t tensor_bytes = 128 * 128 * 4, one = bytes_of_a_step(1, Recompute::kNever);
  EXPECT_GE(one, 16 * tensor_bytes);
  EXPECT_GE(bytes_of_a_step(8, Recompute::kNever), one + 7 * 16 * tensor_bytes);
  EXPECT_LE(bytes_of_a_step(8, Recompute::kAlways), one + tensor_bytes);
}

}  // namespace
}  // namespace gradus::dist
