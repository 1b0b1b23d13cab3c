// A few repetitions of every fault of tools/faults.sh.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

class Faults : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Values("kill-collective", "kill-message", "kill-store", "kill-rendezvous",
                                         "exception", "exit", "throw", "stop", "other-call", "other-order",
                                         "other-op", "other-shape", "other-dtype", "pipeline-kill",
                                         "pipeline-exit", "pipeline-stop", "pipeline-forward",
                                         "pipeline-input-gradient", "pipeline-weight-gradient",
                                         "pipeline-shape", "pipeline-evaluation", "pipeline-micro-batches",
                                         "pipeline-schedule"));

TEST_P(Faults, AreErrorsThatNameThem) {
  Subprocess p({"tests/distributed/launch/faults", "--repetitions", "3", "--kind", GetParam()});
  EXPECT_EQ(p.wait(), 0) << p.out() << p.err();
}

}  // namespace
}  // namespace gradus::dist
