// Metrics of features and images against NumPy and SciPy, with the random choices of metrics.py.
#include "gradus/train/metrics/metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::metrics {
namespace {

Tensor golden(const std::string& name) {
  static const io::SafetensorsFile file = io::load_safetensors("tests/golden/metrics/metrics.safetensors");
  return file.at(name);
}
double number(const std::string& name) { return golden(name).item<double>(); }

void expect_near(const std::vector<double>& given, const std::string& name, double tolerance) {
  const std::vector<double> expected = golden(name).to_vector<double>();
  ASSERT_EQ(given.size(), expected.size()) << name;
  for (size_t i = 0; i < given.size(); ++i)
    EXPECT_NEAR(given[i], expected[i], tolerance * std::max(1.0, expected[i])) << name << " at " << i;
}

// In batches of 7 rows.
FeatureStatistics statistics(const Tensor& features) {
  FeatureStatistics s;
  for (int64_t at = 0; at < features.size(0); at += 7)
    s.update(narrow(features, 0, at, std::min<int64_t>(7, features.size(0) - at)));
  return s;
}

TEST(GoldenMetrics, FrechetDistanceIsSciPys) {
  const double expected = number("frechet/distance");
  const FeatureStatistics a = statistics(golden("frechet/a")), b = statistics(golden("frechet/b"));
  EXPECT_NEAR(frechet_distance(a, b), expected, 1e-12 * expected);
  EXPECT_NEAR(frechet_distance(b, a), expected, 1e-12 * expected);
}

TEST(GoldenMetrics, KernelDistanceIsNumPys) {
  EXPECT_NEAR(kernel_distance(golden("frechet/a"), golden("frechet/b")), number("kernel/distance"), 1e-12);
}

TEST(GoldenMetrics, SlicedWassersteinDistanceIsNumPys) {
  std::vector<SlicedWassersteinChoices> choices;
  for (const std::string k : {"swd/0/", "swd/1/", "swd/2/"})
    choices.push_back({golden(k + "places_a"), golden(k + "places_b"), golden(k + "directions")});
  const SlicedWasserstein d = sliced_wasserstein_of_choices(golden("images/a"), golden("images/b"), choices);
  std::vector<double> all = d.levels;
  all.push_back(d.mean);
  expect_near(all, "swd/pggan", 1e-6);
}

TEST(GoldenMetrics, StructuralSimilarityIsSciPys) {
  for (const std::string height : {"64", "16", "160"}) {  // 64x64, 16x48, 160x16
    const std::string name = "ms_ssim/" + height;
    expect_near(ms_ssim(golden(name + "/a"), golden(name + "/b")).to_vector<double>(), name + "/y", 1e-11);
  }
}

TEST(GoldenMetrics, ClassScoresAreNumPys) {
  const ClassScores s = class_scores(
      golden("classes/p"), {.reference = golden("classes/reference"), .labels = golden("classes/labels")});
  EXPECT_NEAR(s.score, number("classes/score"), 1e-14);
  EXPECT_NEAR(s.score_std, number("classes/score_std"), 1e-14);
  EXPECT_NEAR(s.confident, number("classes/confident"), 1e-15);
  EXPECT_EQ(s.covered, number("classes/covered"));
  EXPECT_NEAR(s.total_variation, number("classes/total_variation"), 1e-15);
  EXPECT_NEAR(s.agreement, number("classes/agreement"), 1e-15);
  expect_near(s.shares.to_vector<double>(), "classes/shares", 1e-15);
}

TEST(GoldenMetrics, PrecisionAndRecallAreNumPys) {
  const PrecisionRecall r = precision_recall(golden("manifold/real"), golden("manifold/generated"));
  EXPECT_DOUBLE_EQ(r.precision, number("manifold/precision"));
  EXPECT_DOUBLE_EQ(r.recall, number("manifold/recall"));
}

}  // namespace
}  // namespace gradus::metrics
