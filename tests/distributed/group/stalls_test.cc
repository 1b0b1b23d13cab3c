// Errors name the rank at fault: in random programs of ranks that wait for each other (tools/simulate.sh
// --deadlocks tries more), and if a process lives but does not make the call that others wait for.
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/tests/distributed/group/random_deadlock.h"
#include "gradus/tests/distributed/rank_processes.h"
#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

TEST(Deadlocks, AreNamedAtOnceAndNeverSuspected) {
  int deadlocked = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const DeadlockReport report = try_deadlock(seed);
    EXPECT_EQ(report.wrong, "");
    deadlocked += report.deadlocked;
  }
  EXPECT_GT(deadlocked, 18);
}

// Runs two launchers of two ranks each, as two hosts. Returns the output of all four ranks, in any order.
std::string stall_on_two_hosts(const std::string& how) {
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Subprocess>> launchers;
  for (const std::string node : {"0", "1"})
    launchers.push_back(std::make_unique<Subprocess>(
        std::vector<std::string>{"distributed/launch/gradus-run", "--nnodes", "2", "--node-rank", node,
                                 "--nproc-per-node", "2", "--master-port", port,
                                 "tests/distributed/group/rendezvous_program", "stall", how},
        Subprocess::Variables{{"GRADUS_TOKEN", "secret"}, {"GRADUS_HOST_ID", "host" + node}}));
  std::string said;
  for (const auto& launcher : launchers) {
    EXPECT_EQ(launcher->wait(), 0) << launcher->err();
    said += launcher->out();
  }
  return said;
}

// All four ranks must name the rank `at_fault` in their errors, with `text`.
void check_stall(const std::string& how, int at_fault, const std::string& text) {
  const std::string said = stall_on_two_hosts(how);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(said,
                HasSubstr("rank " + std::to_string(rank) + " blames " + std::to_string(at_fault) + ": "));
  }
  size_t named = 0;
  for (size_t at = said.find(text); at != said.npos; at = said.find(text, at + 1)) ++named;
  EXPECT_EQ(named, 4u) << said;
}

TEST(StallsOnTwoHosts, ARankThatComputesIsNamed) { check_stall("computes", 3, "] rank 3 "); }
TEST(StallsOnTwoHosts, ARankInAnotherGroupsCallIsNamed) {
  check_stall("elsewhere", 3, "it is in all_reduce #1 of group 'world.1'");
}
// Either rank 0 did not send a message, or rank 3 receives one too many.
TEST(StallsOnTwoHosts, ARankThatReceivesIsNamedWithTheOneThatDoesNotSend) {
  check_stall("receives", 3, "] rank 3 or rank 0 holds up");
}
// Either rank 3 left out a call, or rank 2 makes one too many.
TEST(StallsOnTwoHosts, ARankThatLeavesACallOutIsNamedWithTheOneThatDoesNot) {
  check_stall("goes-on", 2, "] rank 2 or rank 3 holds up");
}

}  // namespace
}  // namespace gradus::dist
