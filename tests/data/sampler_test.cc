#include "gradus/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "gradus/tensor/error.h"

namespace gradus::data {
namespace {

using ::testing::ElementsAre;

TEST(SequentialSampler, CountsUp) {
  EXPECT_THAT(SequentialSampler(4).order(7), ElementsAre(0, 1, 2, 3));
  EXPECT_THROW(SequentialSampler(-1), ValueError);
}

TEST(RandomSampler, GivesPermutationsThatDependOnSeedAndEpochAlone) {
  const RandomSampler a(1000, 3), b(1000, 3), c(1000, 4);
  auto order = a.order(0);
  EXPECT_EQ(order, b.order(0));
  EXPECT_NE(order, a.order(1));
  EXPECT_NE(order, c.order(0));
  EXPECT_EQ(a.order(5), b.order(5)) << "no state is kept between epochs";
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, SequentialSampler(1000).order(0));
  EXPECT_TRUE(RandomSampler(0, 1).order(0).empty());
}

TEST(RandomSampler, EveryPermutationIsEquallyLikely) {
  // 24 permutations of 4, 24,000 draws: each count has mean 1000 and standard deviation 31.
  std::map<std::vector<int64_t>, int> counts;
  const RandomSampler sampler(4, 9);
  for (uint64_t epoch = 0; epoch < 24'000; ++epoch) ++counts[sampler.order(epoch)];
  ASSERT_EQ(counts.size(), 24u);
  double chi2 = 0;
  for (const auto& [order, n] : counts) chi2 += (n - 1000.) * (n - 1000.) / 1000.;
  EXPECT_LT(chi2, 50) << "23 degrees of freedom: above 50 once in a thousand";
}

TEST(Shard, DealsOutEveryPositionOnceAndKeepsGlobalBatches) {
  const auto order = RandomSampler(103, 1).order(0);
  for (int world : {1, 2, 3, 8}) {
    std::vector<int64_t> joined(order.size());
    for (int rank = 0; rank < world; ++rank) {
      const auto mine = shard(order, rank, world);
      for (size_t k = 0; k < mine.size(); ++k) joined[k * size_t(world) + size_t(rank)] = mine[k];
    }
    EXPECT_EQ(joined, order);
  }
  EXPECT_THROW(shard(order, 2, 2), ValueError);
  EXPECT_THROW(shard(order, 0, 0), ValueError);
}

}  // namespace
}  // namespace gradus::data
