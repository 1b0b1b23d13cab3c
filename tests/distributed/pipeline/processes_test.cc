// Pipelines whose ranks are processes, through shared memory and through sockets: all schedules train as the
// undivided model does.
#include <gtest/gtest.h>

#include <cstdlib>
#include <tuple>

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
                           init_process_group({.init_method = "file://" + std::string(std::getenv("MEETING")),
                                               .world_size = test_world(),
                                               .rank = test_rank(),
                                               .timeout = Milliseconds(60'000),
                                               .shared_memory = std::getenv("SHARED_MEMORY") != nullptr});
                           expect_undivided<ResidualMLP>("ResidualMLP");
                           expect_undivided<RowwiseUNet>("RowwiseUNet");
                           expect_undivided<TiedText>("TiedText");
                           destroy_process_group();
                           return int(testing::Test::HasFailure());
                         }};

class PipelineProcesses : public testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, PipelineProcesses, testing::Combine(testing::Values(2, 4), testing::Bool()),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "BySharedMemory" : "BySockets");
                         });

TEST_P(PipelineProcesses, TrainAsOneProcessDoes) {
  const auto [ranks, shared_memory] = GetParam();
  const std::string meeting = fresh_path("meeting");
  const auto variables = [&, shared = shared_memory](int) {
    Variables v = {{"MEETING", meeting}, {"OMP_NUM_THREADS", "1"}};
    if (shared) v.emplace_back("SHARED_MEMORY", "1");
    return v;
  };
  for (const RankEnd& end : run_processes("train", ranks, {.variables = variables}))
    EXPECT_EQ(end.exit_code, 0) << end.output;
}

}  // namespace
}  // namespace gradus::dist
