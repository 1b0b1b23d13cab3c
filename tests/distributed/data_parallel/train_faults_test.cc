// Two repetitions of tools/train-faults.sh (train_faults.cc), which kills ranks of a training: on two and
// four ranks.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

TEST(TrainFaults, KilledGansEndAsIfNothingHadHappened) {
  Subprocess p({"tests/distributed/data_parallel/train_faults", "--repetitions", "2"});
  EXPECT_EQ(p.wait(), 0) << p.out() << p.err();
}

}  // namespace
}  // namespace gradus::dist
