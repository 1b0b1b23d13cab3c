// thread_share(cores, host_of, rank, quota), the number of threads of a rank. `cores` has each rank's
// affinity mask as binary digits (core 0 last), `host_of` each rank's host.
#include "gradus/distributed/group/internal/core_share.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradus::dist::internal {
namespace {

constexpr int kNoQuota = 1024;

TEST(CoreShare, RanksThatMayUseTheSameCoresShareThem) {
  const std::vector<std::string> all = {"11111111", "11111111", "11111111"};
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(thread_share(all, {0, 0, 0}, rank, kNoQuota), 2);
}

TEST(CoreShare, RanksThatAreBoundToCoresOfTheirOwnKeepThem) {
  const std::vector<std::string> bound = {"1111", "11110000"};
  EXPECT_EQ(thread_share(bound, {0, 0}, 0, kNoQuota), 4);
  EXPECT_EQ(thread_share(bound, {0, 0}, 1, kNoQuota), 4);
}

TEST(CoreShare, OnlyRanksOfTheSameHostCount) {
  EXPECT_EQ(thread_share({"1111", "1111", "1111"}, {0, 1, 1}, 0, kNoQuota), 4);
  EXPECT_EQ(thread_share({"1111", "1111", "1111"}, {0, 1, 1}, 2, kNoQuota), 2);
}

TEST(CoreShare, ACoreThatTwoRanksMayUseIsHalfEachOnes) {
  // Rank 0 has cores 0 and 1 alone, and half of 2 and 3.
  EXPECT_EQ(thread_share({"1111", "1100"}, {0, 0}, 0, kNoQuota), 3);
  EXPECT_EQ(thread_share({"1111", "1100"}, {0, 0}, 1, kNoQuota), 1);
}

TEST(CoreShare, RanksShareAQuota) {
  EXPECT_EQ(thread_share({std::string(64, '1'), std::string(64, '1')}, {0, 0}, 0, 4), 2);
  EXPECT_EQ(thread_share({"11", "11", "11"}, {0, 0, 0}, 0, 2), 1);
}

TEST(CoreShare, WhatIsNoListOfCoresIsNone) {
  for (const char* text : {"", ",", "x", "-1", "0-3", "1112", "1 1"})
    EXPECT_EQ(thread_share({text, "1111"}, {0, 0}, 1, kNoQuota), 4) << text;
  EXPECT_EQ(thread_share({"x"}, {0}, 0, kNoQuota), 1);
}

TEST(CoreShare, OwnCoresCanBeRead) {
  const std::string own = available_cores();
  EXPECT_GE(thread_share({own}, {0}, 0, kNoQuota), 1);
  EXPECT_EQ(thread_share({own, own}, {0, 0}, 0, kNoQuota),
            std::max(1, thread_share({own}, {0}, 0, kNoQuota) / 2));
}

}  // namespace
}  // namespace gradus::dist::internal
