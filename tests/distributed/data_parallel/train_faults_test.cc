// A few repetitions of tools/train-faults.sh.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

void expect_all_right(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"tests/distributed/data_parallel/train_faults"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Subprocess p(argv);
  EXPECT_EQ(p.wait(), 0) << p.out() << p.err();
}

TEST(TrainFaults, KilledTrainingsEndAsIfNothingHadHappened) { expect_all_right({"--repetitions", "3"}); }

// One of each kind of moment, on 2 or on 4 ranks.
TEST(TrainFaults, KilledGansEndAsIfNothingHadHappened) {
  expect_all_right({"--program", "gan", "--repetitions", "5"});
}

}  // namespace
}  // namespace gradus::dist
