// PipelineRecord: the actions and messages of recorded training steps with their times, gathered on rank 0.
#include "gradus/distributed/pipeline/pipeline_record.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/distributed/pipeline/step_recorder.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/pipeline/small_models.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;

Pipeline<ResidualMLP> make_pipeline(PipelineOptions options) {
  options.cut_after = {"b1"};
  options.stages = 2;
  return {[] { return std::make_unique<ResidualMLP>(); }, zeros({1, 6}), options};
}

double step(Pipeline<ResidualMLP>& pipe, GradManager& gm) {
  return pipe.step(gm, ones({4, 6}), zeros({4, 3}), nn::mse_loss);
}

std::optional<PipelineRecord> record_of_a_step(const PipelineOptions& options) {
  auto pipe = make_pipeline(options);
  GradManager gm;
  pipe.attach(gm);
  pipe.record_steps(1);
  step(pipe, gm);
  return pipe.gather_records();
}

TEST(PipelineRecord, HasTheListsThatRanInOrderOfTime) {
  for (const int hosts : {1, 2})
    run_ranks(2,
              [] {
                auto pipe = make_pipeline({.schedule = Schedule::kZeroBubbleH1, .micro_batches = 4});
                GradManager gm;
                pipe.attach(gm);
                step(pipe, gm);
                pipe.record_steps(2);
                for (int i = 0; i < 3; ++i) step(pipe, gm);
                const auto record = pipe.gather_records();
                ASSERT_EQ(record.has_value(), get_rank() == 0);
                if (!record) return;
                const ActionLists want =
                    make_schedule(Schedule::kZeroBubbleH1, {.ranks = 2, .micro_batches = 4});
                ASSERT_EQ(record->ranks.size(), 2u);
                for (int rank = 0; rank < 2; ++rank) {
                  const RankRecord& r = record->ranks[rank];
                  EXPECT_THAT((std::vector{r.rank, r.replica, r.pipeline_rank}), ElementsAre(rank, 0, rank));
                  ASSERT_EQ(r.steps.size(), 2u) << "the last two of three";
                  EXPECT_EQ(r.steps[0].number, 2u);
                  EXPECT_EQ(r.steps[1].number, 3u);
                  int64_t before = 0;
                  for (const StepRecord& s : r.steps) {
                    std::vector<Action> list;
                    for (const ActionRecord& a : s.actions) {
                      list.push_back(a.action);
                      EXPECT_LE(before, a.begin);
                      EXPECT_LE(a.begin, a.end);
                      EXPECT_GT(a.held_bytes, 0);
                      before = a.end;
                    }
                    EXPECT_EQ(list, want.of_rank[rank]);
                  }
                }
              },
              {.hosts = hosts});
}

// An activation or gradient is a row of 8 f32 numbers. "1x0 in 0F0": the input (g: its gradient) of stage 1
// in micro-batch 0, moved in action 0F0.
TEST(PipelineRecord, HasBothEndsOfEachMessage) {
  run_ranks(2, [] {
    const auto record = record_of_a_step({.micro_batches = 4});
    if (!record) return;
    for (int rank = 0; rank < 2; ++rank) {
      const StepRecord& s = record->ranks[rank].steps.at(0);
      std::vector<std::string> sent, received;
      for (const MessageRecord& m : s.messages) {
        EXPECT_EQ(m.peer, 1 - rank);
        EXPECT_EQ(m.bytes, 32);
        EXPECT_LE(m.begin, m.end);
        const ActionRecord& a = s.actions.at(m.action);
        if (m.received)
          EXPECT_TRUE(a.begin <= m.end && m.end <= a.end);
        else
          EXPECT_TRUE(a.begin <= m.begin && m.end <= a.end);
        (m.received ? received : sent)
            .push_back(concat(m.stage, m.gradient ? "g" : "x", m.micro_batch, " in ", to_string(a.action)));
      }
      if (rank == 0) {
        EXPECT_THAT(sent, ElementsAre("1x0 in 0F0", "1x1 in 0F1", "1x2 in 0F2", "1x3 in 0F3"));
        EXPECT_THAT(received, ElementsAre("1g0 in 0B0", "1g1 in 0B1", "1g2 in 0B2", "1g3 in 0B3"));
      } else {
        EXPECT_THAT(received, ElementsAre("1x0 in 1F0", "1x1 in 1F1", "1x2 in 1F2", "1x3 in 1F3"));
        EXPECT_THAT(sent, ElementsAre("1g0 in 1B0", "1g1 in 1B1", "1g2 in 1B2", "1g3 in 1B3"));
      }
    }
  });
}

TEST(PipelineRecord, HasAllReplicas) {
  run_ranks(4, [] {
    const auto record = record_of_a_step({.micro_batches = 2});
    if (!record) return;
    std::vector<int> ranks, replicas, places;
    for (const RankRecord& r : record->ranks)
      ranks.push_back(r.rank), replicas.push_back(r.replica), places.push_back(r.pipeline_rank);
    EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(replicas, ElementsAre(0, 0, 1, 1));
    EXPECT_THAT(places, ElementsAre(0, 1, 0, 1));
  });
}

TEST(PipelineRecord, IsEmptyUnlessAskedFor) {
  run_ranks(2, [] {
    auto pipe = make_pipeline({.micro_batches = 2});
    GradManager gm;
    pipe.attach(gm);
    const auto count = [&] {
      const auto record = pipe.gather_records();
      return record ? record->ranks[1].steps.size() : 0;
    };
    const bool first = get_rank() == 0;
    step(pipe, gm);
    EXPECT_EQ(count(), 0u);
    pipe.record_steps(5);
    step(pipe, gm);
    EXPECT_EQ(count(), first ? 1u : 0u);
    pipe.record_steps(0);
    step(pipe, gm);
    EXPECT_EQ(count(), 0u);
    EXPECT_THROW(pipe.record_steps(-1), ValueError);
  });
}

TEST(PipelineRecord, HasNoStepThatFailed) {
  Pipeline<ResidualMLP> pipe([] { return std::make_unique<ResidualMLP>(); }, zeros({1, 6}),
                             {.micro_batches = 2});
  GradManager gm;
  pipe.attach(gm);
  pipe.record_steps(5);
  int calls = 0;
  const auto loss = [&](const Tensor& y, const Tensor& t) {
    if (++calls == 2) throw ValueError("loss", "failed");
    return nn::mse_loss(y, t);
  };
  EXPECT_THROW(pipe.step(gm, ones({4, 6}), zeros({4, 3}), loss), ValueError);
  pipe.step(gm, ones({4, 6}), zeros({4, 3}), loss);
  const auto record = pipe.gather_records();
  ASSERT_TRUE(record);
  ASSERT_EQ(record->ranks.at(0).steps.size(), 1u);
  EXPECT_EQ(record->ranks[0].steps[0].number, 1u);
  EXPECT_EQ(record->ranks[0].steps[0].actions.size(), 4u);
}

// Rank r's clock is r hours ahead. A round trip between threads takes far less than a second.
TEST(Clocks, AreComparedByTheShortestRoundTrip) {
  run_ranks(3, [] {
    constexpr int64_t kSecond = 1'000'000'000;
    const int64_t ahead = get_rank() * 3600 * kSecond;
    const int64_t offset = internal::clock_offset(world(), [&] { return internal::monotonic_now() + ahead; });
    EXPECT_LT(std::abs(offset - ahead), kSecond);
  });
}

}  // namespace
}  // namespace gradus::dist
