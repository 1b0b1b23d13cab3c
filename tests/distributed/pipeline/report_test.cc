// make_report() and the text of its result, exactly, on records made by hand.
#include "gradus/distributed/pipeline/pipeline_report.h"

#include <gmock/gmock.h>

#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/pipeline/small_models.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

ActionRecord action(ActionKind kind, int stage, int micro_batch, int64_t begin, int64_t end) {
  return {{kind, stage, micro_batch}, begin * kMs, end * kMs, 0};
}
MessageRecord message(int action, bool received, bool gradient, int64_t begin, int64_t end) {
  return {.action = action,
          .received = received,
          .peer = 0,
          .stage = 1,
          .gradient = gradient,
          .bytes = 1'000'000,
          .begin = begin * kMs,
          .end = end * kMs};
}

// Two ranks and one micro-batch, in milliseconds from 100 on:
//   rank 0   F 0..10, sent at 9; waits 12..40 for the gradient, sent at 35; B 40..60
//   rank 1   waits 2..13; F 13..20; then 1 ms for nothing; B 21..36
PipelineRecord by_hand() {
  PipelineRecord record;
  RankRecord& first = record.ranks.emplace_back();
  first.steps.push_back(
      {7,
       {action(ActionKind::kForward, 0, 0, 100, 110), action(ActionKind::kBackward, 0, 0, 140, 160)},
       {message(0, false, false, 109, 110), message(1, true, true, 112, 140)},
       2'000'000});
  RankRecord& second = record.ranks.emplace_back();
  second.rank = second.pipeline_rank = 1;
  second.steps.push_back(
      {7,
       {action(ActionKind::kForward, 1, 0, 113, 120), action(ActionKind::kBackward, 1, 0, 121, 136)},
       {message(0, true, false, 102, 113), message(1, false, true, 135, 136)},
       2'000'000});
  return record;
}

TEST(PipelineReport, SplitsIdleTime) {
  const PipelineReport report = make_report(by_hand());
  constexpr double kExact = 1e-12, ms = 1e-3;
  EXPECT_EQ(report.steps, 1);
  EXPECT_NEAR(report.makespan, 60 * ms, kExact);
  ASSERT_EQ(report.ranks.size(), 2u);
  const auto expect = [&](const RankReport& r, double busy, double fill, double drain, double slower,
                          double communication, double overhead) {
    EXPECT_NEAR(r.busy, busy * ms, kExact) << r.rank;
    EXPECT_NEAR(r.fill, fill * ms, kExact) << r.rank;
    EXPECT_NEAR(r.drain, drain * ms, kExact) << r.rank;
    EXPECT_NEAR(r.slower_stage, slower * ms, kExact) << r.rank;
    EXPECT_NEAR(r.communication, communication * ms, kExact) << r.rank;
    EXPECT_NEAR(r.overhead, overhead * ms, kExact) << r.rank;
    EXPECT_EQ(r.max_in_flight, 1);
    EXPECT_EQ(r.sent_bytes, 1e6);
    EXPECT_EQ(r.all_reduce_bytes, 2e6);
  };
  expect(report.ranks[0], 30, 0, 0, 35 - 12, 40 - 35, 12 - 10);
  expect(report.ranks[1], 22, 13, 24, 0, 0, 1);
  EXPECT_NEAR(report.idle_fraction, 1 - 52. / 120, kExact);
  // F 10, F 7, B 15, B 20.
  EXPECT_NEAR(report.predicted_makespan, 52 * ms, kExact);
  EXPECT_NEAR(report.predicted_idle_fraction, 0.5, kExact);
  const std::vector<StageTimes> times = stage_times(report);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_NEAR(times[1].forward, 7 * ms, kExact);
  EXPECT_NEAR(times[1].input_gradient, 15 * ms, kExact);
  EXPECT_EQ(times[1].weight_gradient, 0);
}

// A second step and a second replica, both twice as slow.
TEST(PipelineReport, IsTheMeanOverStepsAndReplicas) {
  const auto slower = [](StepRecord step) {
    ++step.number;
    for (ActionRecord& a : step.actions) a.begin *= 2, a.end *= 2;
    for (MessageRecord& m : step.messages) m.begin *= 2, m.end *= 2;
    return step;
  };
  PipelineRecord steps = by_hand(), replicas = by_hand();
  for (RankRecord& r : steps.ranks) r.steps.push_back(slower(r.steps[0]));
  for (RankRecord r : by_hand().ranks) {
    r.rank += 2, r.replica = 1;
    r.steps[0] = slower(r.steps[0]);
    --r.steps[0].number;
    replicas.ranks.push_back(r);
  }
  for (const PipelineReport& report : {make_report(steps), make_report(replicas)}) {
    EXPECT_NEAR(report.makespan, 0.090, 1e-12);
    EXPECT_NEAR(report.predicted_makespan, 0.078, 1e-12);
    EXPECT_NEAR(report.idle_fraction, 1 - 52. / 120, 1e-12);
    EXPECT_NEAR(report.predicted_idle_fraction, 0.5, 1e-12);
    EXPECT_NEAR(stage_times(report)[0].forward, 0.015, 1e-12);
  }
  EXPECT_EQ(make_report(replicas).ranks.size(), 4u);
  EXPECT_NEAR(make_report(replicas).ranks[3].busy, 0.044, 1e-12);
  EXPECT_NEAR(make_report(steps).ranks[1].busy, 0.033, 1e-12);
}

TEST(PipelineReport, PrintsTables) {
  const std::string text = to_string(make_report(by_hand()));
  EXPECT_THAT(text, HasSubstr("stage  rank      F ms      B ms      I ms      W ms\n"
                              "    0     0    10.000    20.000         -         -\n"
                              "    1     1     7.000    15.000         -         -\n"));
  EXPECT_THAT(text, HasSubstr("slower stage  communication  overhead  held   MB sent   reduced\n"
                              "    0    30.000     0.000     0.000        23.000          5.000     2.000"));
  EXPECT_THAT(text,
              HasSubstr("    1    22.000    13.000    24.000         0.000          0.000     1.000     1"
                        "     1.000     2.000\n"));
  EXPECT_THAT(text, HasSubstr("step 60.000 ms, idle 56.67 %; theory 52.000 ms, idle 50.00 %\n"));
}

TEST(PipelineReport, NeedsTheSameStepsOnAllRanks) {
  EXPECT_THROW(make_report({}), ValueError);
  PipelineRecord record = by_hand();
  record.ranks[1].steps[0].number = 8;
  EXPECT_THROW(make_report(record), ValueError);
  record = by_hand();
  record.ranks[1].steps.clear();
  EXPECT_THROW(make_report(record), ValueError);
  record = by_hand();
  record.ranks[1].steps[0].actions.clear();
  EXPECT_THROW(make_report(record), ValueError);
}

}  // namespace
}  // namespace gradus::dist
