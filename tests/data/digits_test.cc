// GeneratedDigits, the synthetic substitute of MNIST: shapes, reproducibility, balance, and that classes are
// neither trivial nor impossible to separate.
#include "gradus/data/sets/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "gradus/tensor/runtime/context.h"

namespace gradus::data {
namespace {

std::vector<uint8_t> pixels(const GeneratedDigits& d) { return d.images().to_vector<uint8_t>(); }

TEST(GeneratedDigits, HasMnistsSizesAndShapes) {
  const GeneratedDigits d({.train = false});
  EXPECT_EQ(d.size(), 10'000);
  EXPECT_EQ(d.name(), "GeneratedDigits");
  EXPECT_EQ(describe(d.get(0).input), "f32[1,28,28] cpu");
  EXPECT_EQ(describe(d.get(0).target), "i64[] cpu");
  EXPECT_THROW(GeneratedDigits({.size = 0}), ValueError);
}

TEST(GeneratedDigits, AnImageDependsOnSeedPartAndIndexAlone) {
  const auto with_threads = [](int threads, int64_t size) {
    Context context = Context::current().snapshot();
    context.threads = threads;
    ContextScope scope(context);
    return pixels(GeneratedDigits({.size = size, .seed = 4}));
  };
  const auto one = with_threads(1, 1000);
  EXPECT_EQ(one, with_threads(4, 1000));
  auto longer = with_threads(2, 1500);
  longer.resize(one.size());
  EXPECT_EQ(one, longer);
  EXPECT_NE(one, pixels(GeneratedDigits({.size = 1000, .seed = 5})));
  EXPECT_NE(one, pixels(GeneratedDigits({.train = false, .size = 1000, .seed = 4})));
}

TEST(GeneratedDigits, NoImageOccursTwice) {
  std::set<std::vector<uint8_t>> seen;
  for (bool train : {true, false}) {
    const GeneratedDigits d({.train = train, .size = 2000});
    for (int64_t i = 0; i < d.size(); ++i) {
      const uint8_t* p = d.images().data<uint8_t>() + i * 784;
      EXPECT_TRUE(seen.emplace(p, p + 784).second);
    }
  }
}

TEST(GeneratedDigits, ClassesAreBalancedAndImagesHaveInkInTheMiddle) {
  const GeneratedDigits d({.size = 10'000});
  std::array<int, 10> counts{};
  for (int64_t i = 0; i < d.size(); ++i) {
    ++counts[d.labels().data<uint8_t>()[i]];
    const uint8_t* p = d.images().data<uint8_t>() + i * 784;
    int64_t ink = 0, inside = 0;
    for (int y = 0; y < 28; ++y)
      for (int x = 0; x < 28; ++x) {
        ink += p[y * 28 + x];
        if (x >= 3 && x < 25 && y >= 2 && y < 26) inside += p[y * 28 + x];
      }
    ASSERT_GT(ink, 784 * 5) << "image " << i << " is almost empty";
    ASSERT_LT(ink, 784 * 130) << "image " << i << " is almost full";
    ASSERT_GT(inside, ink / 2) << "image " << i << " lies at the edge";
  }
  for (int n : counts) EXPECT_NEAR(n, 1000, 150);
}

TEST(GeneratedDigits, ClassesCanBeToldApartButNotByTheirMeans) {
  // A nearest-class-mean classifier gets 40 to 90 % right. The example's test trains a network.
  const GeneratedDigits train({.size = 5000}), test({.train = false, .size = 1000});
  std::array<std::array<double, 784>, 10> mean{};
  std::array<double, 10> counts{};
  for (int64_t i = 0; i < train.size(); ++i) {
    const int label = train.labels().data<uint8_t>()[i];
    ++counts[size_t(label)];
    for (int k = 0; k < 784; ++k)
      mean[size_t(label)][size_t(k)] += train.images().data<uint8_t>()[i * 784 + k];
  }
  int right = 0;
  for (int64_t i = 0; i < test.size(); ++i) {
    size_t best = 0;
    double best_distance = std::numeric_limits<double>::infinity();
    for (size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (size_t k = 0; k < 784; ++k) {
        const double e = mean[c][k] / counts[c] - test.images().data<uint8_t>()[i * 784 + int64_t(k)];
        distance += e * e;
      }
      if (distance < best_distance) best = c, best_distance = distance;
    }
    right += best == test.labels().data<uint8_t>()[i];
  }
  EXPECT_GT(right, 400);
  EXPECT_LT(right, 900);
}

TEST(GeneratedDigits, NormalizationIsCloseToMeanZeroDeviationOne) {
  const GeneratedDigits d({.size = 2000});
  std::vector<int64_t> all(2000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = int64_t(i);
  double sum = 0, squares = 0;
  for (float v : d.get_batch(all).input.to_vector<float>()) {
    sum += v;
    squares += double(v) * v;
  }
  const double n = 2000. * 784;
  EXPECT_NEAR(sum / n, 0, .15);
  EXPECT_NEAR(std::sqrt(squares / n), 1, .15);
}

}  // namespace
}  // namespace gradus::data
