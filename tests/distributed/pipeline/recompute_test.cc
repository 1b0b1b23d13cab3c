// Recomputation of forwards before their backwards (activation checkpointing) in pipelines: the same bits,
// which forwards run again, how much memory that saves, and which stages a memory limit selects.
#include "gradus/distributed/pipeline/recompute.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "gradus/autograd/graph/tracking.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/internal/auto_cut.h"
#include "gradus/nn/reparametrize.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tests/distributed/pipeline/action_lists.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns the number that follows `words` in a text.
int64_t number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + words.size());
}

// Dropout, batch norm and clipping included.
TEST(Recompute, GivesTheSameBits) {
  const auto want = train_unet(1, {.micro_batches = 4});
  const PipelineOptions ways[] = {{.recompute = Recompute::kAlways},
                                  {.recompute = Recompute::kExceptLast},
                                  {.recompute = Recompute::kAlways, .recompute_every = 1},
                                  {.memory_limit = 1 << 26, .recompute = Recompute::kAuto}};
  for (PipelineOptions options : ways) {
    options.micro_batches = 4;
    expect_unet(want, options, {1, 2, 4});
    expect_interleaved_unet(want, options);
  }
  // A limit that only recomputation keeps: the least possible, which the error names, and 5 %.
  PipelineOptions tight{
      .schedule = Schedule::kGPipe, .micro_batches = 4, .memory_limit = 1, .recompute = Recompute::kAuto};
  try {
    train_unet(1, tight);
    ADD_FAILURE() << "a limit of one byte";
  } catch (const std::exception& e) {
    tight.memory_limit = number_after(e.what(), "a rank needs at least ") * 21 / 20;
  }
  EXPECT_EQ(train_unet(1, tight), want);
}

// Each forward takes a step of power iteration. A recomputation must use the first forward's vectors.
struct Spectral : nn::Layer {
  nn::Linear a{this, "a", {.in = 8, .out = 8}}, b{this, "b", {.in = 8, .out = 8}};
  Spectral() { nn::spectral_norm(a), nn::spectral_norm(b); }
  Tensor forward(const Tensor& x) override { return b(tanh(a(x))); }
};

TEST(Recompute, SeesTheStateOfTheFirstForward) {
  const auto grads = [](PipelineOptions options) {
    manual_seed(5);
    options.schedule = Schedule::kGPipe;
    options.micro_batches = 4;
    Pipeline<Spectral> pipe([] { return std::make_unique<Spectral>(); }, zeros({2, 8}), options);
    GradManager gm;
    pipe.attach(gm);
    pipe.step(gm, random_tensor({8, 8}), zeros({8, 8}), nn::mse_loss);
    std::vector<std::vector<double>> all;
    for (const Tensor& p : pipe.parameters()) all.push_back(p.grad().to_vector<double>());
    for (const Tensor& u : pipe.module().buffers())
      if (u.device() == kCPU) all.push_back(u.to_vector<double>());
    return all;
  };
  run_ranks(2, [&] {
    const auto want = grads({.cut_after = {"a"}});
    EXPECT_EQ(want.size(), 4u);
    EXPECT_EQ(grads({.cut_after = {"a"}, .recompute = Recompute::kAlways}), want);
  });
  const auto want = grads({});
  EXPECT_EQ(want.size(), 8u);
  EXPECT_EQ(grads({.recompute = Recompute::kAlways, .recompute_every = 1}), want);
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

using Runs = std::vector<std::pair<int, int>>;

// Returns how often the layers of each rank ran for the first time, and again.
Runs runs(Schedule schedule, Recompute recompute) {
  Runs of_rank(2);
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

struct FourCounted : nn::Layer {
  Counted a{this, "a"}, b{this, "b"}, c{this, "c"}, d{this, "d"};
  Tensor forward(const Tensor& x) override { return d(c(b(a(x)))); }
};

// Returns the same for each of four layers on one rank.
Runs runs_on_one_rank(PipelineOptions options) {
  options.micro_batches = 4;
  Pipeline<FourCounted> pipe([] { return std::make_unique<FourCounted>(); }, zeros({2, 8}), options);
  GradManager gm;
  pipe.attach(gm);
  pipe.step(gm, ones({8, 8}), zeros({8, 8}), nn::mse_loss);
  Runs all;
  const auto& m = pipe.module();
  for (const Counted* layer : {&m.a, &m.b, &m.c, &m.d}) all.emplace_back(layer->first, layer->again);
  return all;
}

// Only the last group's backward follows its forward immediately.
TEST(Recompute, RunsGroupsOfLayersAgain) {
  const auto except_last = [](int every) {
    return runs_on_one_rank({.recompute = Recompute::kExceptLast, .recompute_every = every});
  };
  EXPECT_EQ(except_last(0), (Runs{{4, 0}, {4, 0}, {4, 0}, {4, 0}}));
  EXPECT_EQ(except_last(1), (Runs{{4, 4}, {4, 4}, {4, 4}, {4, 0}}));
  EXPECT_EQ(except_last(2), (Runs{{4, 4}, {4, 4}, {4, 0}, {4, 0}}));
  EXPECT_EQ(except_last(3), (Runs{{4, 4}, {4, 4}, {4, 4}, {4, 0}}));
  EXPECT_EQ(except_last(9), except_last(0));
}

TEST(Recompute, GroupsStandSideBySideInTheLists) {
  // The three stages have 2, 1 and 3 groups.
  const ActionLists lists = lists_of({"0F0 2F0 2I0 0B0 2W0", "1F0 1B0"});
  EXPECT_THAT(to_text(internal::in_groups(lists, {2, 1, 3})),
              ElementsAre("0F0 1F0 3F0 4F0 5F0 5I0 4I0 3I0 1B0 0B0 5W0 4W0 3W0", "2F0 2B0"));
}

// The loss, on the last rank, is not returned until rank 0 recomputes its forward.
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

// The backward of each of 8 blocks needs its input and its tanh: 16 tensors.
struct Wide : nn::Layer {
  struct Block : nn::Layer {
    using Layer::Layer;
    nn::Linear fc{this, "fc", {.in = 128, .out = 128}};
    Tensor forward(const Tensor& x) override { return x + tanh(fc(x)); }
  };
  nn::ModuleList<Block> blocks{this, "blocks"};
  Wide() {
    for (int i = 0; i < 8; ++i) blocks.add();
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (auto& block : blocks) y = block(y);
    return y;
  }
};

// Returns the peak bytes of a step besides parameters, gradients and the batch.
int64_t bytes_of_a_step(int micro_batches, PipelineOptions options) {
  options.schedule = Schedule::kGPipe;
  options.micro_batches = micro_batches;
  Pipeline<Wide> pipe([] { return std::make_unique<Wide>(); }, zeros({128, 128}), options);
  GradManager gm;
  pipe.attach(gm);
  const Tensor x = ones({128 * micro_batches, 128}), t = zeros({128 * micro_batches, 128});
  pipe.step(gm, x, t, nn::mse_loss);
  const int64_t before = memory_stats().live_bytes;
  reset_peak_memory();
  pipe.step(gm, x, t, nn::mse_loss);
  return memory_stats().peak_bytes - before;
}

constexpr int64_t kTensorBytes = 128 * 128 * 4;
// One micro-batch, without recomputation.
int64_t one() { return bytes_of_a_step(1, {}); }

// All forwards come before the first backward.
TEST(Recompute, HoldsOneMicroBatchInsteadOfAll) {
  EXPECT_GE(one(), 16 * kTensorBytes);
  EXPECT_GE(bytes_of_a_step(8, {}), one() + 7 * 16 * kTensorBytes);
  EXPECT_LE(bytes_of_a_step(8, {.recompute = Recompute::kAlways}), one() + kTensorBytes);
}

// Four groups keep three tensors of each micro-batch, and the running one needs a quarter of a stage.
TEST(Recompute, HoldsOneGroupInsteadOfAStage) {
  const int64_t most = bytes_of_a_step(2, {.recompute = Recompute::kAlways, .recompute_every = 2});
  EXPECT_GE(most, (2 * 3 + 4) * kTensorBytes);
  EXPECT_LE(most, one() - 16 * kTensorBytes + (2 * 3 + 4 + 1) * kTensorBytes);
}

// Trains a step under a memory limit. Returns what describe() says, or the error.
std::string with_limit(int64_t limit, PipelineOptions options) {
  options.schedule = Schedule::kGPipe;
  options.memory_limit = limit;
  options.recompute = Recompute::kAuto;
  Pipeline<Wide> pipe([] { return std::make_unique<Wide>(); }, zeros({16, 128}), options);
  EXPECT_THAT(pipe.describe(), HasSubstr("the first training step chooses which stages run again"));
  GradManager gm;
  pipe.attach(gm);
  try {
    pipe.step(gm, ones({128, 128}), zeros({128, 128}), nn::mse_loss);
  } catch (const ValueError& e) {
    return e.what();
  }
  return pipe.describe();
}

int count(const std::string& text, const std::string& words) {
  int n = 0;
  for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(RecomputeAuto, RunsAgainWhereTheLimitIsElseNotKept) {
  const char* kAgain = "runs again unless its backward follows";
  for (const PipelineOptions& options :
       {PipelineOptions{.interleave = 2, .micro_batches = 8, .cut_after = {"blocks.5"}},
        PipelineOptions{.interleave = 2, .cut_after = {"blocks.5"}}}) {
    const std::string none = with_limit(int64_t{1} << 40, options);
    EXPECT_EQ(count(none, kAgain), 0) << none;
    EXPECT_LT(number_after(none, "a rank needs at most "), 1 << 30) << none;

    const std::string error = with_limit(100, options);
    EXPECT_THAT(error, HasSubstr("memory_limit = 100 bytes"));
    const int64_t least = number_after(error, "a rank needs at least ");
    EXPECT_GT(least, 4 * 8 * (128 * 128 + 128) * 4);
    const std::string both = with_limit(least + least / 50, options);
    EXPECT_EQ(count(both, kAgain), 2) << both;
    EXPECT_LE(number_after(both, "a rank needs at most "), least + least / 50) << both;
  }
  // One byte less than needed without recomputation: one stage runs again.
  const PipelineOptions fixed{.interleave = 2, .micro_batches = 8, .cut_after = {"blocks.5"}};
  const int64_t all = number_after(with_limit(int64_t{1} << 40, fixed), "a rank needs at most ");
  const std::string one = with_limit(all - 1, fixed);
  EXPECT_EQ(count(one, kAgain), 1) << one;
}

TEST(RecomputeAuto, TellsAllRanksOfALimitThatCannotBeKept) {
  std::atomic<int> errors{0};
  run_ranks(2, [&] {
    if (with_limit(100, {.micro_batches = 4, .cut_after = {"blocks.3"}}).find("a rank needs at least") !=
        std::string::npos)
      ++errors;
  });
  EXPECT_EQ(errors, 2);
}

TEST(RecomputeAuto, FreesTheMostBytesForItsTime) {
  using internal::choose_recomputation;
  const ActionLists lists = make_schedule(Schedule::k1F1B, {.ranks = 2, .micro_batches = 4});
  const StageTimes t{
      .forward = 1, .input_gradient = 1, .weight_gradient = 1, .bytes = 100, .input_bytes = 10};
  const auto chosen = [&](double limit, Recompute mode = Recompute::kAuto) {
    return choose_recomputation(mode, lists, {t, t}, {50, 60}, limit);
  };
  // The ranks need 50 and 60 bytes besides micro-batches, of which two and one are in flight.
  EXPECT_THAT(chosen(270).rank_bytes, ElementsAre(2 * 110 + 50, 110 + 60));
  EXPECT_THAT(chosen(270).of_stage, ElementsAre(Recompute::kNever, Recompute::kNever));
  EXPECT_EQ(chosen(270).makespan, (4 + 1) * 3);
  const auto tight = chosen(269);
  EXPECT_THAT(tight.of_stage, ElementsAre(Recompute::kExceptLast, Recompute::kNever));
  EXPECT_THAT(tight.rank_bytes, ElementsAre(2 * 10 + 100 + 50, 110 + 60));
  EXPECT_TRUE(tight.stages[0].recomputed);
  EXPECT_GT(tight.makespan, (4 + 1) * 3);
  // Recomputation saves nothing on the last rank. Other modes than kAuto are not changed.
  EXPECT_THAT(chosen(1).of_stage, ElementsAre(Recompute::kExceptLast, Recompute::kNever));
  EXPECT_EQ(chosen(1).peak_bytes(), 170);
  for (const Recompute mode : {Recompute::kNever, Recompute::kAlways})
    EXPECT_THAT(chosen(1, mode).of_stage, ElementsAre(mode, mode));

  const ActionLists of_one = make_schedule(Schedule::kGPipe, {.stages_per_rank = 2, .micro_batches = 4});
  StageTimes slow = t;
  slow.forward = 10;
  EXPECT_THAT(choose_recomputation(Recompute::kAuto, of_one, {slow, t}, {0}, 8 * 110 - 1).of_stage,
              ElementsAre(Recompute::kNever, Recompute::kExceptLast));
}

TEST(RecomputeOptions, ThatDoNotFitTogetherAreErrors) {
  const auto error = [](const PipelineOptions& options) -> std::string {
    try {
      const Pipeline<Wide> pipe([] { return std::make_unique<Wide>(); }, zeros({2, 128}), options);
    } catch (const ValueError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_THAT(error({.recompute = Recompute::kAuto}), HasSubstr("expected a memory_limit"));
  EXPECT_THAT(error({.recompute = Recompute::kAlways, .recompute_every = -1}),
              HasSubstr("expected recompute_every >= 0, got -1"));
  EXPECT_THAT(error({.recompute_every = 2}), HasSubstr("got none"));
  EXPECT_EQ(error({.recompute = Recompute::kAlways, .recompute_every = 2}), "none");
}

}  // namespace
}  // namespace gradus::dist
