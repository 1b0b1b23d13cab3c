// A few repetitions of ./run train_faults.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

TEST(TrainFaults, KilledTrainingsEndAsIfNothingHadHappened) {
  Subprocess p({"tests/distributed/data_parallel/train_faults", "--repetitions", "3"});
  EXPECT_EQ(p.wait(), 0) << p.out() << p.err();
}

}  // namespace
}  // namespace gradus::dist
