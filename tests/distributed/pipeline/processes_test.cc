// Pipelines whose ranks are processes, through shared memory and through sockets: all schedules train as the
// undivided model does.
#include <gtest/gtest.h>

#include <utility>

#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/pipeline/undivided.h"
#include "gradus/tests/distributed/rank_processes.h"

namespace gradus::dist {
namespace {

constexpr int kMicroBatches = 4;
constexpr int64_t kRows = 13;

template <class M> void expect_undivided(const char* model) {
  const Trained want = undivided<M>(kRows);
  for (const Schedule schedule : kSchedules) {
    const Trained got = trained_here<M>(options_of<M>(schedule, test_world(), kMicroBatches), kRows);
    EXPECT_LE(difference(got, want), 1e-12) << model << " by " << name_of(schedule);
  }
}

const RankFunction train{"train", [] {
                           join_job();
                           expect_undivided<ResidualMLP>("ResidualMLP");
                           expect_undivided<RowwiseUNet>("RowwiseUNet");
                           expect_undivided<TiedText>("TiedText");
                           destroy_process_group();
                           return int(testing::Test::HasFailure());
                         }};

TEST(PipelineProcesses, TrainAsOneProcessDoes) {
  for (const auto& [ranks, shared_memory] : {std::pair(4, true), {2, false}})
    for (const RankEnd& end : run_processes("train", ranks, job_options(shared_memory)))
      EXPECT_EQ(end.exit_code, 0) << end.output;
}

}  // namespace
}  // namespace gradus::dist
