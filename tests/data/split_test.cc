// Random splits by counts and fractions, and folds of cross-validation, whose sizes and (unshuffled) samples
// are those of PyTorch and of scikit-learn.
#include "gradus/data/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using testing::ElementsAre;

TensorDataset numbers(int64_t size) {
  std::vector<int64_t> v(static_cast<size_t>(size));
  std::iota(v.begin(), v.end(), int64_t{0});
  return TensorDataset(tensor(v, {size}));
}

std::vector<int64_t> samples_of(const Subset& subset) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < subset.size(); ++i) samples.push_back(subset.get(i).input.item<int64_t>());
  return samples;
}

std::vector<int64_t> sizes(const std::vector<Subset>& parts) {
  std::vector<int64_t> all;
  for (const Subset& part : parts) all.push_back(part.size());
  return all;
}

TEST(RandomSplit, GivesEachSampleToOnePart) {
  const TensorDataset set = numbers(100);
  const std::vector<Subset> parts = random_split(set, {set.size() - 30, 30}, 1);
  EXPECT_THAT(sizes(parts), ElementsAre(70, 30));
  std::vector<int64_t> all = samples_of(parts[0]);
  for (int64_t sample : samples_of(parts[1])) all.push_back(sample);
  EXPECT_FALSE(std::ranges::is_sorted(all));
  std::ranges::sort(all);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(all[size_t(i)], i);
}

TEST(RandomSplit, DependsOnTheSeedAlone) {
  const TensorDataset set = numbers(50);
  const auto first = [&](uint64_t seed) { return samples_of(random_split(set, {20, 30}, seed)[0]); };
  EXPECT_EQ(first(3), first(3));
  EXPECT_NE(first(3), first(4));
}

// Sizes of torch.utils.data.random_split.
TEST(RandomSplit, GivesTheRemainderOfFractionsToTheFirstParts) {
  EXPECT_THAT(sizes(random_split(numbers(10), {0.3, 0.3, 0.4}, 0)), ElementsAre(3, 3, 4));
  EXPECT_THAT(sizes(random_split(numbers(11), {0.25, 0.25, 0.25, 0.25}, 0)), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(sizes(random_split(numbers(5), {0.5f, 0.5f}, 0)), ElementsAre(3, 2));
  EXPECT_THAT(sizes(random_split(numbers(10), {0.7, 0.2, 0.1}, 0)), ElementsAre(7, 2, 1));
  EXPECT_THAT(sizes(random_split(numbers(3), {1.0, 0.0}, 0)), ElementsAre(3, 0));
  EXPECT_THAT(sizes(random_split(numbers(0), {0.5, 0.5}, 0)), ElementsAre(0, 0));
}

TEST(RandomSplit, OwnsADataSetThatIsMovedIn) {
  std::vector<Subset> parts = random_split(numbers(4), {2, 2}, 0);
  parts.pop_back();
  EXPECT_EQ(samples_of(parts[0]).size(), 2u);
}

TEST(RandomSplit, ThrowsUnlessThePartsAreTheWholeSet) {
  const TensorDataset set = numbers(10);
  EXPECT_ERROR(ValueError, random_split(set, {5, 4}, 0), "sum 10", "sum 9");
  EXPECT_ERROR(ValueError, random_split(set, {5, 6}, 0), "part 1", "5 samples left");
  EXPECT_ERROR(ValueError, random_split(set, {}, 0), "sum 10");
  EXPECT_ERROR(ValueError, random_split(set, {0.5, 0.4}, 0), "sum 0.9");
  for (const std::vector<PartSize>& parts :
       {std::vector<PartSize>{11, -1}, {-1, 11}, {5, 0.5}, {0.5, 5}, {1.5, -0.5}, {std::nan(""), 1.0}})
    EXPECT_THROW(random_split(set, parts, 0), ValueError);
}

// Folds of sklearn.model_selection.KFold.
TEST(KFold, ValidatesWithEachRangeOnce) {
  const std::vector<Fold> folds = k_fold(7, 3);
  ASSERT_EQ(folds.size(), 3u);
  EXPECT_THAT(folds[0].validation, ElementsAre(0, 1, 2));
  EXPECT_THAT(folds[1].validation, ElementsAre(3, 4));
  EXPECT_THAT(folds[2].validation, ElementsAre(5, 6));
  EXPECT_THAT(folds[1].train, ElementsAre(0, 1, 2, 5, 6));
}

TEST(KFold, ShufflesBySeed) {
  const std::vector<Fold> folds = k_fold(20, 4, {.shuffle = true, .seed = 2});
  std::vector<int64_t> all;
  for (const Fold& fold : folds) {
    EXPECT_EQ(fold.validation.size(), 5u);
    EXPECT_EQ(fold.train.size(), 15u);
    EXPECT_TRUE(std::ranges::is_sorted(fold.validation));
    all.insert(all.end(), fold.validation.begin(), fold.validation.end());
  }
  EXPECT_FALSE(std::ranges::is_sorted(all));
  std::ranges::sort(all);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(all[size_t(i)], i);
  EXPECT_NE(k_fold(20, 4, {.shuffle = true, .seed = 3})[0].validation, folds[0].validation);
}

// Folds of sklearn.model_selection.StratifiedKFold.
TEST(StratifiedKFold, DividesEachLabelEvenly) {
  const std::vector<Fold> folds = stratified_k_fold({5, 5, 5, 2, 2, 5, 2, 5, 5}, 3);
  EXPECT_THAT(folds[0].validation, ElementsAre(0, 1, 3));
  EXPECT_THAT(folds[1].validation, ElementsAre(2, 4, 5));
  EXPECT_THAT(folds[2].validation, ElementsAre(6, 7, 8));
  for (const Fold& fold :
       stratified_k_fold(std::vector<int64_t>{0, 1, 0, 1, 0, 1, 1, 0, 0}, 2, {.shuffle = true, .seed = 1})) {
    int64_t ones = 0;
    for (int64_t i : fold.validation) ones += i == 1 || i == 3 || i == 5 || i == 6;
    EXPECT_EQ(ones, 2);
  }
}

TEST(KFold, ThrowsForFewerThanTwoPartsAndFewerSamplesThanParts) {
  EXPECT_ERROR(ValueError, k_fold(10, 1), "k = 1", "10 samples");
  EXPECT_THROW(k_fold(3, 4), ValueError);
  EXPECT_THROW(k_fold(-1, 2), ValueError);
  EXPECT_THROW(stratified_k_fold({}, 2), ValueError);
}

}  // namespace
}  // namespace gradus::data
