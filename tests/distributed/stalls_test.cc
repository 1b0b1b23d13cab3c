// Some of the stalls of ./run simulate --stalls.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/random_stall.h"

namespace gradus::dist {
namespace {

TEST(Stalls, AreBlamedOnTheRankThatStalls) {
  for (uint64_t seed = 0; seed < 150; ++seed) EXPECT_EQ(try_stall(seed), "");
}

}  // namespace
}  // namespace gradus::dist
