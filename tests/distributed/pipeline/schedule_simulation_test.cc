// simulate(): makespan, idle fraction and micro-batches in flight for p ranks and m micro-batches equal the
// formulas of the schedules, exactly, since all times are sums of powers of two. Formulas:
// Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021 (GPipe,
// 1F1B, interleaved); Qi et al., "Zero bubble pipeline parallelism", 2023 (ZB-H1), counted from the first
// action of all ranks to the last one.
#include "gradus/distributed/pipeline/schedule_simulation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "gradus/tensor/base/error.h"
#include "gradus/tests/distributed/pipeline/action_lists.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;

constexpr int kMaxRanks = 10, kMaxMicroBatches = 32;
// {forward, input_gradient, weight_gradient}
const StageTimes kTimes[] = {{1, 1, 1}, {1, 0.5, 1}, {1, 1.5, 1}, {2, 1, 0.25}, {0.5, 2, 2}};

// A rank's times t, divided among its `depth` stages.
std::vector<StageTimes> equal_stages(const ActionLists& lists, StageTimes t, int depth = 1) {
  t.forward /= depth, t.input_gradient /= depth, t.weight_gradient /= depth;
  return std::vector<StageTimes>(lists.stages(), t);
}

// `link`: the time that a message takes.
SchedulePrediction predict(Schedule s, int ranks, int micro_batches, StageTimes t, int depth = 1,
                           int extra = 0, double link = 0) {
  const ActionLists lists = make_schedule(
      s, {.ranks = ranks, .stages_per_rank = depth, .micro_batches = micro_batches, .extra_warmup = extra});
  return simulate(lists, equal_stages(lists, t, depth), link);
}

std::vector<int64_t> held(const SchedulePrediction& p) {
  std::vector<int64_t> all;
  for (const RankPrediction& r : p.ranks) all.push_back(r.max_in_flight);
  return all;
}

template <class F> void for_all_sizes(const F& f) {
  for (int p = 1; p <= kMaxRanks; ++p)
    for (int m = 1; m <= kMaxMicroBatches; ++m) f(p, m);
}

TEST(Simulation, GPipeAnd1F1B) {
  for_all_sizes([](int p, int m) {
    for (const StageTimes& t : kTimes) {
      const double both = t.forward + t.input_gradient + t.weight_gradient;
      for (Schedule s : {Schedule::kGPipe, Schedule::kGPipeLIFO, Schedule::k1F1B}) {
        const SchedulePrediction got = predict(s, p, m, t);
        ASSERT_EQ(got.makespan, (m + p - 1) * both) << name_of(s) << p << " " << m;
        ASSERT_NEAR(got.idle_fraction, double(p - 1) / (m + p - 1), 1e-15);
        for (int r = 0; r < p; ++r)
          ASSERT_EQ(got.ranks[r].max_in_flight, s == Schedule::k1F1B ? std::min(m, p - r) : m);
      }
      ASSERT_EQ(predict(Schedule::kGPipe, p, m, t, 1, 0, 0.25).makespan, (m + p - 1) * both + (p - 1) * 0.5);
    }
  });
}

TEST(Simulation, SlowLinks) {
  for_all_sizes([](int p, int m) {
    for (const double link : {0.25, 1.0, 2.0, 4.0}) {
      const StageTimes t{1, 0.5, 0.5};
      const int extra = int(std::ceil(2 * link / 2));
      const SchedulePrediction got = predict(Schedule::k1F1BSlowLinks, p, m, t, 1, extra, link);
      ASSERT_EQ(got.makespan, (m + p - 1) * 2 + 2 * (p - 1) * link) << p << " " << m << " " << link;
      for (int r = 0; r < p; ++r)
        ASSERT_EQ(got.ranks[r].max_in_flight, std::min(m, (p - 1 - r) * (1 + extra) + 1));
    }
  });
  // Plain 1F1B waits for its messages.
  EXPECT_EQ(predict(Schedule::k1F1B, 4, 64, {1, 1, 1}, 1, 0, 1).makespan, 301);
  EXPECT_EQ(predict(Schedule::k1F1BSlowLinks, 4, 64, {1, 1, 1}, 1, 1, 1).makespan, 207);
}

TEST(Simulation, Interleaved) {
  for (int depth : {2, 4})
    for (int p = 1; p <= kMaxRanks; ++p)
      for (int m = p; m <= kMaxMicroBatches; m += p) {
        const StageTimes t{1, 1, 1};
        const SchedulePrediction got = predict(Schedule::kInterleaved1F1B, p, m, t, depth);
        ASSERT_EQ(got.makespan, (m + double(p - 1) / depth) * 3) << p << " " << m << " " << depth;
        for (int r = 0; r < p; ++r)
          ASSERT_EQ(got.ranks[r].max_in_flight, std::min(m * depth, (depth - 1) * p + 2 * (p - 1 - r) + 1));
      }
}

TEST(Simulation, ZeroBubbleH1) {
  for_all_sizes([](int p, int m) {
    for (const StageTimes& t : kTimes) {
      const double f = t.forward, i = t.input_gradient, w = t.weight_gradient;
      const SchedulePrediction got = predict(Schedule::kZeroBubbleH1, p, m, t);
      if (m >= p) {
        ASSERT_EQ(got.makespan, m * (f + i + w) + (p - 1) * std::max({f, i, f + i - w})) << p << " " << m;
        for (int r = 0; r < p; ++r) ASSERT_EQ(got.ranks[r].max_in_flight, std::min(m, p));
      } else if (m == 1) {
        ASSERT_EQ(got.makespan, p * (f + i) + w);
      }
    }
  });
}

TEST(Simulation, ZeroBubbleV) {
  for_all_sizes([](int p, int m) {
    if (m < 2 * p - 1) return;
    const SchedulePrediction got = predict(Schedule::kZeroBubbleV, p, m, {1, 1, 1}, 2);
    ASSERT_EQ(got.makespan, m * 3 + (p - 1) * 0.5) << p << " " << m;
    for (int r = 0; r < p; ++r) ASSERT_LE(got.ranks[r].max_in_flight, 2 * p);
  });
  EXPECT_EQ(predict(Schedule::kZeroBubbleV, 4, 4, {1, 1, 1}, 2).makespan, 15);  // fewer micro-batches
}

TEST(Simulation, UnequalStages) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 20; ++m) {
      const ActionLists lists = make_schedule(Schedule::kGPipe, {.ranks = p, .micro_batches = m});
      std::vector<StageTimes> stages;
      double f = 0, b = 0, most_f = 0, most_b = 0;
      for (int s = 0; s < p; ++s) {
        stages.push_back({1 + (s * 5 % 3) * 0.5, 0.5 + (s * 7 % 4) * 0.25, 1});
        f += stages[s].forward, b += stages[s].input_gradient + 1;
        most_f = std::max(most_f, stages[s].forward), most_b = std::max(most_b, stages[s].input_gradient + 1);
      }
      EXPECT_EQ(simulate(lists, stages).makespan, f + (m - 1) * most_f + b + (m - 1) * most_b);
    }
}

TEST(Simulation, AnEvaluationHoldsNothing) {
  const ActionLists lists = forwards_of(make_schedule(Schedule::k1F1B, {.ranks = 3, .micro_batches = 5}));
  const SchedulePrediction p = simulate(lists, equal_stages(lists, {1, 1, 1, 8}));
  EXPECT_EQ(p.makespan, 7);
  EXPECT_THAT(held(p), ElementsAre(0, 0, 0));
}

TEST(Simulation, SixMillionActions) {
  const ActionLists lists = make_schedule(Schedule::kZeroBubbleH1, {.ranks = 512, .micro_batches = 4096});
  EXPECT_EQ(simulate(lists, equal_stages(lists, {1, 1, 1})).makespan, 4096 * 3 + 511);
}

TEST(Simulation, ArgumentsAreChecked) {
  const ActionLists lists = make_schedule(Schedule::kGPipe, {.ranks = 2, .micro_batches = 2});
  EXPECT_THROW(simulate(lists, {{1, 1, 1}}), ValueError);
  EXPECT_THROW(simulate(lists, {{1, 1, 1}, {1, -1, 1}}), ValueError);
  EXPECT_THROW(simulate(lists, {{1, 1, 1}, {1, NAN, 1}}), ValueError);
  EXPECT_THROW(simulate(lists, {{1, 1, 1}, {1, 1, 1}}, NAN), ValueError);
  EXPECT_THROW(simulate(lists_of({"0B0 0F0"}), {{1, 1, 1}}), ValueError);
}

TEST(Simulation, AForwardThatRunsAgainTakesTimeAndFewBytes) {
  const StageTimes kept{
      .forward = 1, .input_gradient = 1, .weight_gradient = 1, .bytes = 8, .input_bytes = 1};
  StageTimes again = kept;
  again.recomputed = true;
  const ActionLists lists = make_schedule(Schedule::k1F1B, {.ranks = 2, .micro_batches = 4});
  const auto bytes = [&](const StageTimes& t) {
    const SchedulePrediction p = simulate(lists, {t, t});
    return std::vector{p.ranks[0].peak_bytes, p.ranks[1].peak_bytes};
  };
  EXPECT_THAT(bytes(kept), ElementsAre(2 * 9, 9));
  EXPECT_THAT(bytes(again), ElementsAre(2 + 8, 9));
  EXPECT_EQ(simulate(lists, {again, again}).makespan, (4 + 1) * 4);
  // Between I and W a micro-batch keeps what its recomputation saved.
  const SchedulePrediction apart = simulate(lists_of({"0F0 0F1 0I0 0I1 0W0 0W1"}), {again});
  EXPECT_EQ(apart.ranks[0].peak_bytes, 2 * 9);
  EXPECT_EQ(apart.makespan, 2 + 4 + 2);
}

}  // namespace
}  // namespace gradus::dist
