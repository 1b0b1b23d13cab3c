// Ranks that train on emulated GPUs, by NCCL and through host memory, when one of them fails at a chosen point: what
// rank_fault.h promises. tools/gpu-rank-faults.sh tries random points.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <tuple>

#include "gradus/tests/cuda/ranks/rank_fault.h"

namespace gradus::dist {
namespace {

// A fault is written as for parse_fault(), without the way of communication.
struct Case {
  const char *name, *fault;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.fault; }
using Param = std::tuple<const char*, Case>;
class RankFaults : public testing::TestWithParam<Param> {};

TEST_P(RankFaults, EndAsTheyMust) {
  const auto& [way, c] = GetParam();
  const FaultReport report = run_fault(parse_fault(std::string(way) + " " + c.fault));
  EXPECT_TRUE(report.has_happened);
  for (const std::string& w : report.wrong) ADD_FAILURE() << w;
}

std::string name_of(const testing::TestParamInfo<Param>& info) { return std::get<1>(info.param).name; }

const auto kCases = testing::Values(
    // Ranks that end.
    Case{"KilledBeforeItJoins", "kill init"}, Case{"ThrowsBeforeItsModel", "throw model"},
    Case{"KilledInItsForward", "kill forward step=2"}, Case{"ThrowsInItsLoss", "throw loss step=0"},
    Case{"KilledBeforeTheFirstBucket", "kill hook count=0"}, Case{"ExitsBetweenBuckets", "exit hook count=2"},
    Case{"ThrowsBetweenBuckets", "throw hook count=3 rank=2"},
    Case{"ReturnsAfterItsBackward", "return backward"},
    Case{"KilledWhileItsCallIsUnderWay", "kill wait rank=0"},
    Case{"ExitsAfterTheStep", "exit updated step=3"}, Case{"KilledBeforeTheLastBarrier", "kill end"},
    Case{"KilledAfterTheLastBarrier", "kill leaving"},
    Case{"KilledWithTheStore", "kill hook count=1 rank=0 rank_0_has_store=1"},
    Case{"TwoAreKilled", "kill hook count=4 second=2"},
    // Calls that do not match.
    Case{"LeavesACallOut", "skip call"}, Case{"CallsWithAnotherShape", "shape call rank=2"},
    Case{"CallsWithAnotherOp", "op call"}, Case{"CallsAnotherFunction", "other_call call"},
    Case{"CallsWithATensorOfTheHost", "on_host call"},
    // Ranks that fail on their GPUs, or are stopped.
    Case{"HasAKernelError", "kernel_error loss"}, Case{"LosesItsGpu", "lose_device hook count=1"},
    Case{"StoppedInItsForward", "stop forward"}, Case{"PausedBetweenBuckets", "pause hook count=2"});
INSTANTIATE_TEST_SUITE_P(ByNccl, RankFaults, testing::Combine(testing::Values("nccl"), kCases), name_of);
INSTANTIATE_TEST_SUITE_P(ThroughHost, RankFaults, testing::Combine(testing::Values("host"), kCases), name_of);

// Failures of NCCL on one rank: ncclSystemError, ncclInternalError and ncclRemoteError.
const auto kNcclCases = testing::Values(
    Case{"Connect", "library_error library_call function=ncclCommInitRankConfig status=2"},
    Case{"AllReduceOfABucket", "library_error library_call function=ncclAllReduce status=3 count=4"},
    Case{"AllReduceWithARemoteError",
         "library_error library_call function=ncclAllReduce status=6 count=6 rank=0"},
    Case{"Broadcast", "library_error library_call function=ncclBroadcast status=2 count=3 rank=2"},
    Case{"AllGather", "library_error library_call function=ncclAllGather status=3 count=1"});
INSTANTIATE_TEST_SUITE_P(OfNccl, RankFaults, testing::Combine(testing::Values("nccl"), kNcclCases), name_of);

}  // namespace
}  // namespace gradus::dist

int main(int argc, char** argv) {
  if (const auto code = gradus::dist::run_as_rank(argc, argv)) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
