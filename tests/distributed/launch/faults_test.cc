// Two repetitions of each fault of tools/faults.sh (faults.cc), which kills or stops a rank of four, or lets
// it throw, exit or make another call. The two seeds give a pipeline of four stages, and two pipelines of two
// stages.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

class Faults : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Values("kill-collective", "kill-message", "kill-store", "kill-rendezvous",
                                         "exception", "exit", "stop", "other-call", "pipeline-kill",
                                         "pipeline-exit", "pipeline-stop", "pipeline-forward"));

TEST_P(Faults, AreErrorsThatNameThem) {
  Subprocess p(
      {"tests/distributed/launch/faults", "--repetitions", "2", "--world", "4", "--kind", GetParam()});
  EXPECT_EQ(p.wait(), 0) << p.out() << p.err();
}

}  // namespace
}  // namespace gradus::dist
