// A few repetitions of tools/train-faults.sh.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

// One of each kind of moment, on 2 or on 4 ranks.
TEST(TrainFaults, KilledGansEndAsIfNothingHadHappened) {
  Subprocess p({"tests/distributed/data_parallel/train_faults", "--repetitions", "5"});
  EXPECT_EQ(p.wait(), 0) << p.out() << p.err();
}

}  // namespace
}  // namespace gradus::dist
