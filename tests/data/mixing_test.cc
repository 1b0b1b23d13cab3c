// MixUp and CutMix against their formulas: every sample of a batch is mixed with the sample before it,
// cyclically, and the targets are f32[N,classes] with weights r and 1 - r. Draws depend on seed, epoch and
// position only.
#include "gradus/data/transforms/mixing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gradus/autograd/ops/ops.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/sets/fake_data.h"
#include "gradus/data/transforms/random_numbers.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

// Four samples with distinct values; sample i has class i. Loaders give channels-last batches.
Batch four(bool channels_last) {
  const Shape shape{4, 3, 5, 7};
  Batch b{channels_last ? empty_channels_last(shape) : empty(shape), tensor<int64_t>({0, 1, 2, 3}, {4})};
  for (int64_t i = 0; i < b.input.numel(); ++i) b.input.ptr<float>()[i] = float(i) / 64;
  b.indices = {5, 6, 7, 8};
  return b;
}

TEST(MixUp, WeighsEachSampleWithTheOneBefore) {
  for (bool channels_last : {false, true}) {
    manual_seed(3);
    const Tensor x = four(channels_last).input;
    const Batch mixed = MixUp({.num_classes = 6})(four(channels_last));
    ASSERT_EQ(mixed.target.shape(), Shape({4, 6}));
    EXPECT_EQ(mixed.input.is_channels_last(), channels_last);
    EXPECT_EQ(mixed.indices, (std::vector<int64_t>{5, 6, 7, 8}));
    const auto y = mixed.target.to_vector<float>(), a = x.to_vector<float>(),
               m = mixed.input.to_vector<float>();
    const float r = y[0];
    EXPECT_GT(r, 0);
    EXPECT_LT(r, 1);
    for (size_t i = 0; i < 4; ++i) {
      const size_t before = (i + 3) % 4;
      for (size_t c = 0; c < 6; ++c) EXPECT_EQ(y[6 * i + c], c == i ? r : c == before ? 1 - r : 0);
      for (size_t k = 0; k < 105; ++k)
        ASSERT_NEAR(m[105 * i + k], r * a[105 * i + k] + (1 - r) * a[105 * before + k], 1e-6)
            << i << " " << k;
    }
  }
}

TEST(MixUp, LeavesTheTensorThatOthersHold) {
  Batch b = four(true);
  const Tensor kept = b.input;
  const auto before = kept.to_vector<float>();
  MixUp({.num_classes = 4})(std::move(b));
  EXPECT_EQ(kept.to_vector<float>(), before);
}

TEST(MixUp, LossIsTheMixtureOfLosses) {
  manual_seed(4);
  const Batch mixed = MixUp({.num_classes = 4})(four(false));
  const float r = mixed.target.to_vector<float>()[0];
  const Tensor logits = randn({4, 4});
  const auto loss = [&](const Tensor& target) { return cross_entropy(logits, target).item<double>(); };
  const double own = loss(tensor<int64_t>({0, 1, 2, 3}, {4})),
               before = loss(tensor<int64_t>({3, 0, 1, 2}, {4}));
  EXPECT_NEAR(loss(mixed.target), r * own + (1 - r) * before, 1e-6);
}

TEST(CutMix, PutsABoxOfTheSampleBeforeIntoEach) {
  const int64_t h = 5, w = 7;
  int boxes = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    manual_seed(seed);
    const Tensor x = four(seed % 2).input;
    const Batch mixed = CutMix({.num_classes = 4})(four(seed % 2));
    const auto a = x.to_vector<float>(), m = mixed.input.to_vector<float>(),
               y = mixed.target.to_vector<float>();
    int64_t left = w, right = 0, top = h, bottom = 0, cut = 0;
    for (int64_t i = 0; i < h; ++i)
      for (int64_t j = 0; j < w; ++j)
        if (m[size_t(i * w + j)] != a[size_t(i * w + j)]) {
          left = std::min(left, j), right = std::max(right, j + 1);
          top = std::min(top, i), bottom = std::max(bottom, i + 1);
          ++cut;
        }
    EXPECT_EQ(cut, std::max<int64_t>(right - left, 0) * std::max<int64_t>(bottom - top, 0)) << "no box";
    boxes += cut > 0;
    for (size_t s = 0; s < 4; ++s) {
      const size_t before = (s + 3) % 4;
      EXPECT_NEAR(y[4 * s + s], 1 - double(cut) / double(h * w), 1e-6);
      EXPECT_NEAR(y[4 * s + before], double(cut) / double(h * w), 1e-6);
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t i = 0; i < h; ++i)
          for (int64_t j = 0; j < w; ++j) {
            const bool inside = i >= top && i < bottom && j >= left && j < right;
            const size_t at = size_t((c * h + i) * w + j);
            ASSERT_EQ(m[105 * s + at], a[105 * (inside ? before : s) + at]);
          }
    }
  }
  EXPECT_GT(boxes, 100);
}

// Beta(alpha, alpha) has mean 1/2 and variance 1 / (4 (2 alpha + 1)).
TEST(Mixing, DrawsAreThoseOfTheBetaDistribution) {
  for (double alpha : {0.2, 1., 3.}) {
    manual_seed(1);
    double sum = 0, squares = 0;
    const int n = 20000;
    internal::RandomNumbers random;
    for (int i = 0; i < n; ++i) {
      const double r = random.beta(alpha);
      ASSERT_TRUE(r >= 0 && r <= 1);
      sum += r;
      squares += (r - 0.5) * (r - 0.5);
    }
    EXPECT_NEAR(sum / n, 0.5, 0.012) << alpha;
    EXPECT_NEAR(squares / n, 1 / (4 * (2 * alpha + 1)), 0.005) << alpha;
  }
  internal::RandomNumbers random;
  for (int i = 0; i < 100; ++i) {
    const double r = random.beta(1e-4);
    EXPECT_TRUE(r >= 0 && r <= 1) << r;
  }
}

TEST(Mixing, DependsOnSeedEpochAndPlaceAlone) {
  const FakeData d({.size = 24, .image_size = {6, 5}, .classes = 4});
  const auto targets = [&](int workers, int64_t skip = 0) {
    DataLoader loader(
        d, {.batch_size = 4,
            .shuffle = true,
            .num_workers = workers,
            .seed = 3,
            .batch_transform = RandomChoice({MixUp({.num_classes = 4}), CutMix({.num_classes = 4})})});
    if (skip > 0) loader.set_state({.epoch = 0, .samples = skip, .seed = 3, .dataset_size = 24});
    std::vector<std::vector<float>> all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const Batch& b : loader) all.push_back(b.target.to_vector<float>());
    return all;
  };
  const auto alone = targets(0);
  ASSERT_EQ(alone.size(), 12u);
  EXPECT_EQ(targets(1), alone);
  EXPECT_EQ(targets(4), alone);
  const auto rest = targets(2, 8);
  EXPECT_EQ(rest, (std::vector<std::vector<float>>(alone.begin() + 2, alone.end()))) << "after resuming";
  std::set<float> weights;
  for (const auto& t : alone) weights.insert(*std::max_element(t.begin(), t.end()));
  EXPECT_GT(weights.size(), 3u) << "each batch has a draw of its own";
}

TEST(Mixing, RanksDrawDifferently) {
  const FakeData d({.size = 8, .image_size = {6, 5}, .classes = 4});
  const auto target = [&](int rank) {
    DataLoader loader(d, {.batch_size = 4,
                          .seed = 3,
                          .rank = rank,
                          .world_size = 2,
                          .batch_transform = MixUp({.num_classes = 4})});
    const auto t = loader.begin()->target.to_vector<float>();
    return *std::max_element(t.begin(), t.end());
  };
  EXPECT_NE(target(0), target(1));
}

TEST(Mixing, MistakesAreNamed) {
  EXPECT_THROW(MixUp({.num_classes = 0}), ValueError);
  EXPECT_THROW(MixUp({.num_classes = 2, .alpha = 0}), ValueError);
  EXPECT_THROW(CutMix({.num_classes = 2, .alpha = -1}), ValueError);
  EXPECT_THROW(RandomChoice({}), ValueError);
  const MixUp mixup({.num_classes = 4});
  const CutMix cutmix({.num_classes = 4});
  EXPECT_ERROR(Error, MixUp({.num_classes = 3})(four(true)), "label 3 is 3, expected 0 to 2");
  EXPECT_ERROR(Error, mixup(Batch{empty({4, 2})}), "no targets");
  EXPECT_ERROR(Error, mixup(Batch{empty({4, 2}, {.dtype = DType::kU8}), empty({4}, {.dtype = DType::kI64})}),
               "u8[4,2]");
  EXPECT_ERROR(Error, mixup(Batch{empty({4, 2}), empty({3}, {.dtype = DType::kI64})}), "[N]");
  EXPECT_ERROR(Error, cutmix(Batch{empty({4, 2}), empty({4}, {.dtype = DType::kI64})}), "[N,C,H,W]");
  Batch soft = mixup(four(true));
  EXPECT_ERROR(Error, mixup(soft), "[4,4]");
}

}  // namespace
}  // namespace gradus::data
