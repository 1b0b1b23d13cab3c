// Samplers and shard(), which gives a rank its part of an order. Random orders depend on seed and epoch only
// and are checked statistically; DistributedSampler is compared with the index lists of PyTorch's (not
// shuffled).
#include "gradus/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/tensor/base/error.h"

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

TEST(ReplacementSampler, DrawsByWeightAndNeverWhatHasNone) {
  // Binomial: the counts of 60,000 draws have a standard deviation of sqrt(60000 p (1 - p)) < 123.
  const std::vector<double> weights = {0, 1, 2, 0, 3, 0};
  const ReplacementSampler sampler(weights, 60'000, 5);
  EXPECT_EQ(sampler.size(), 60'000);
  std::vector<int64_t> counts(weights.size());
  for (int64_t i : sampler.order(3)) ++counts.at(size_t(i));
  for (size_t i = 0; i < weights.size(); ++i)
    EXPECT_NEAR(double(counts[i]), 10'000 * weights[i], weights[i] * 600) << i;
  EXPECT_EQ(sampler.order(3), ReplacementSampler(weights, 60'000, 5).order(3)) << "seed and epoch decide";
  EXPECT_NE(sampler.order(3), sampler.order(4));
  EXPECT_NE(sampler.order(3), ReplacementSampler(weights, 60'000, 6).order(3));
  // Every draw in [0, sum) is rounded to 0 or to the sum.
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_THAT(ReplacementSampler({0, least, 0}, 20, 1).order(0), ::testing::Each(1));
}

TEST(ReplacementSampler, RejectsWeightsThatAreNoDistribution) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights :
       {std::vector<double>{}, {0, 0}, {1, -1}, {1, nan}, {inf}, {1.5e308, 1.5e308}})
    EXPECT_THROW(ReplacementSampler(weights, 1, 0), ValueError);
  EXPECT_THROW(ReplacementSampler({1}, -1, 0), ValueError);
}

// The indices of one rank, in order.
std::vector<int64_t> replica(int64_t size, int rank, int replicas, bool drop_last) {
  const DistributedSampler sampler(
      size, {.num_replicas = replicas, .rank = rank, .shuffle = false, .drop_last = drop_last});
  const std::vector<int64_t> indices = sampler.indices();
  EXPECT_EQ(sampler.num_samples(), int64_t(indices.size()));
  return indices;
}

TEST(DistributedSampler, PadsOrDropsAndDealsOutAsPyTorchsDoes) {
  EXPECT_THAT(replica(10, 0, 3, false), ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(replica(10, 1, 3, false), ElementsAre(1, 4, 7, 0));
  EXPECT_THAT(replica(10, 2, 3, false), ElementsAre(2, 5, 8, 1));
  EXPECT_THAT(replica(10, 0, 3, true), ElementsAre(0, 3, 6));
  EXPECT_THAT(replica(10, 2, 3, true), ElementsAre(2, 5, 8));
  EXPECT_THAT(replica(2, 3, 5, false), ElementsAre(1))
      << "padding larger than the set begins again and again";
  EXPECT_THAT(replica(2, 4, 5, false), ElementsAre(0));
  EXPECT_TRUE(replica(2, 4, 5, true).empty());
  EXPECT_TRUE(replica(0, 0, 2, false).empty());
  EXPECT_THAT(DistributedSampler(3, {.shuffle = false}).indices(), ElementsAre(0, 1, 2))
      << "without a job: one rank";
  EXPECT_THROW(DistributedSampler(3, {.num_replicas = 2, .rank = 2}), ValueError);
  EXPECT_THROW(DistributedSampler(-1, {}), ValueError);
}

TEST(DistributedSampler, GivenToALoaderGivesItsShareAndObeysSetEpoch) {
  const TensorDataset d(empty({10}));
  for (int rank : {0, 2}) {
    auto sampler = std::make_shared<DistributedSampler>(
        10, DistributedSamplerOptions{.num_replicas = 3, .rank = rank, .seed = 6});
    DataLoader loader(d, {.batch_size = 2, .sampler = sampler});
    for (uint64_t epoch : {0, 1}) {
      std::vector<int64_t> read;
      for (const Batch& b : loader) read.insert(read.end(), b.indices.begin(), b.indices.end());
      EXPECT_EQ(read, shard(sampler->order(epoch), rank, 3)) << "the loader counts the epochs";
    }
    sampler->set_epoch(7);
    const std::vector<int64_t> seventh = sampler->order(0);
    EXPECT_EQ(std::vector<int64_t>(seventh.begin(), seventh.begin() + 10), RandomSampler(10, 6).order(7));
    std::vector<int64_t> read;
    for (const Batch& b : loader) read.insert(read.end(), b.indices.begin(), b.indices.end());
    EXPECT_EQ(read, sampler->indices());
    EXPECT_NE(sampler->indices(),
              DistributedSampler(10, {.num_replicas = 3, .rank = rank, .seed = 6}).indices());
  }
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
