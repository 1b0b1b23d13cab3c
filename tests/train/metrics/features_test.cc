// Metrics of generated images: kernel distance, precision and recall of features; scores by a classifier.
// Cases computed by hand, statistical properties, errors. tests/golden/metrics compares other values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"
#include "gradus/train/metrics/class_scores.h"

namespace gradus::metrics {
namespace {

constexpr TensorOptions kF64{.dtype = DType::kF64};

// n standard normal samples of d features.
Tensor features(uint64_t seed, int64_t n, int64_t d) {
  manual_seed(seed);
  return randn({n, d}, kF64);
}

TEST(KernelDistance, SubsetsOfAllSamplesAreTheWhole) {
  const Tensor a = features(1, 12, 3), b = features(2, 12, 3) + 1;
  const KernelDistance d = kernel_distance_of_subsets(a, b, {.subsets = 3});
  EXPECT_NEAR(d.mean, kernel_distance(a, b), 1e-12);
  EXPECT_NEAR(d.std, 0, 1e-12);
}

TEST(KernelDistance, OfSubsetsScattersAroundTheWhole) {
  const Tensor a = features(1, 60, 3), b = features(2, 50, 3) + 1;
  const KernelDistance d = kernel_distance_of_subsets(a, b, {.subsets = 400, .subset_size = 20});
  EXPECT_GT(d.std, 0);
  EXPECT_NEAR(d.mean, kernel_distance(a, b), 4 * d.std / 20);
  EXPECT_EQ(kernel_distance_of_subsets(a, b, {.subsets = 400, .subset_size = 20}).mean, d.mean);
  EXPECT_NE(kernel_distance_of_subsets(a, b, {.subsets = 400, .subset_size = 20, .seed = 1}).mean, d.mean);
}

// For two sets of one distribution the unbiased estimate has mean 0; with k(x, x) the mean would be 3.25.
TEST(KernelDistance, HasNoBias) {
  double sum = 0;
  int below = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    const double d = kernel_distance(features(2 * i, 6, 4), features(2 * i + 1, 6, 4));
    sum += d, below += d < 0;
  }
  EXPECT_NEAR(sum / 400, 0, 0.5);
  EXPECT_GT(below, 100);
}

TEST(PrecisionRecall, OfSetsThatAreKnown) {
  const auto line = [](std::vector<double> x) { return tensor(x, {int64_t(x.size()), 1}); };
  const Tensor real = line({0, 1, 2, 10}), generated = line({2.5, 3, 30, 31});
  // Radii with k = 1: real 1, 1, 1, 8; generated .5, .5, 1, 1.
  const PrecisionRecall r = precision_recall(real, generated, {.k = 1});
  EXPECT_DOUBLE_EQ(r.precision, 0.5);  // 2.5 and 3, which is on the edge
  EXPECT_DOUBLE_EQ(r.recall, 0.25);    // 2, on the edge
  const PrecisionRecall same = precision_recall(real, real);
  EXPECT_EQ(same.precision, 1);
  EXPECT_EQ(same.recall, 1);
  const Tensor constant = full({6, 3}, 0.1, kF64);
  EXPECT_EQ(precision_recall(constant, constant).precision, 1) << "balls of radius 0";
  EXPECT_EQ(precision_recall(constant, constant + 1e-9).precision, 0);
}

TEST(PrecisionRecall, FewSamplesAmongManyModesArePreciseAlone) {
  const Tensor real = features(1, 300, 2);
  const PrecisionRecall r = precision_recall(real, features(2, 100, 2) * 0.05);
  EXPECT_EQ(r.precision, 1);
  EXPECT_LT(r.recall, 0.1);
}

TEST(FeatureMetrics, WhatDoesNotFitIsNamed) {
  const Tensor x = features(1, 6, 2);
  const auto both = [](Tensor a, Tensor b, auto check) {
    check([=] { kernel_distance(a, b); });
    check([=] { kernel_distance_of_subsets(a, b); });
    check([=] { precision_recall(a, b); });
  };
  both(x, features(1, 6, 3), [](auto f) { EXPECT_ERROR(ShapeError, f(), "as many features"); });
  both(x, flatten(x), [](auto f) { EXPECT_ERROR(ShapeError, f(), "b [N,D]"); });
  both(Tensor(), x, [](auto f) { EXPECT_ERROR(ValueError, f(), "a is undefined"); });
  both(to(x, DType::kI64), x, [](auto f) { EXPECT_ERROR(DTypeError, f(), "a "); });
  both(x, x * std::nan(""), [](auto f) { EXPECT_ERROR(ValueError, f(), "row 0 of b"); });
  both(narrow(x, 0, 0, 1), x, [](auto f) { EXPECT_ERROR(ValueError, f(), "samples"); });
  for (const int64_t bad : {int64_t{0}, int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_ERROR(ValueError, kernel_distance_of_subsets(x, x, {.subsets = bad}), "subsets");
    EXPECT_ERROR(ValueError, kernel_distance_of_subsets(x, x, {.subset_size = bad}), "subset_size");
    EXPECT_ERROR(ValueError, precision_recall(x, x, {.k = bad}), "k of 1 to 5");
  }
  EXPECT_ERROR(ValueError, precision_recall(x, x, {.k = 6}), "got 6");
}

// ---- scores by a classifier ----

TEST(ClassScores, OfSureAndBalancedIsTheNumberOfClasses) {
  const Tensor p = repeat(eye(4), {5, 1});  // 0 log 0 is 0
  const ClassScores s = class_scores(p, {.splits = 5});
  EXPECT_NEAR(s.score, 4, 1e-12);
  EXPECT_NEAR(s.score_std, 0, 1e-12);
  EXPECT_EQ(s.confident, 1);
  EXPECT_EQ(s.covered, 4);
  EXPECT_NEAR(s.total_variation, 0, 1e-15);
  EXPECT_TRUE(std::isnan(s.agreement));
  EXPECT_NEAR(class_scores(full({12, 3}, 1. / 3)).score, 1, 1e-7);
}

TEST(ClassScores, SplitsAreConsecutive) {
  const Tensor sure = eye(2, -1, {.dtype = DType::kF64});
  const Tensor p = cat({sure, full({2, 2}, 0.5, {.dtype = DType::kF64})}, 0);
  const ClassScores s = class_scores(p, {.splits = 2});  // scores 2 and 1
  EXPECT_NEAR(s.score, 1.5, 1e-12);
  EXPECT_NEAR(s.score_std, 0.5, 1e-12);
}

TEST(ClassScores, AClassIsCoveredFromAQuarterOfItsShareOn) {
  const Tensor p = to(one_hot(tensor({0, 0, 0, 0, 0, 0, 0, 1}), 3), DType::kF32);
  const auto covered = [&](Tensor reference) {
    return class_scores(p, {.reference = reference, .splits = 1}).covered;
  };
  EXPECT_EQ(covered(tensor({50, 50, 0})), 2);  // 1/8 is a quarter of 1/2; a class that does not occur is none
  EXPECT_EQ(covered(tensor({49, 51, 0})), 1);
  EXPECT_EQ(covered(tensor({0.0, 0.5, 0.5})), 1);
  const ClassScores s = class_scores(
      p, {.reference = tensor({2, 1, 1}), .labels = tensor({0, 0, 1, 1, 2, 2, 0, 1}), .splits = 1});
  EXPECT_DOUBLE_EQ(s.total_variation, 3. / 8);
  EXPECT_DOUBLE_EQ(s.agreement, 0.5);
  EXPECT_EQ(s.shares.to_vector<double>(), (std::vector<double>{7. / 8, 1. / 8, 0}));
}

TEST(ClassScores, ConfidenceIncludesItsBound) {
  const Tensor p = tensor({{0.75, 0.25}, {0.5, 0.5}, {1.0, 0.0}, {0.25, 0.75}});
  EXPECT_EQ(class_scores(p, {.splits = 1, .confident = 0.75}).confident, 0.75);
  EXPECT_EQ(class_scores(p, {.splits = 1}).confident, 0.25);
}

TEST(ClassScores, WhatDoesNotFitIsNamed) {
  const Tensor p = full({20, 2}, 0.5);
  const auto with = [&](ClassScoresOptions o) { return [=] { class_scores(p, o); }; };
  EXPECT_ERROR(ValueError, class_scores(Tensor()), "undefined");
  EXPECT_ERROR(ShapeError, class_scores(zeros({3})), "[N,C]");
  EXPECT_ERROR(DTypeError, class_scores(ones({3, 1}, {.dtype = DType::kI64})), "probabilities");
  EXPECT_ERROR(ValueError, class_scores(p * 1.01), "softmax(x, 1)");
  EXPECT_ERROR(ValueError, class_scores(p * std::nan("")), "row 0");
  EXPECT_ERROR(ValueError, class_scores(tensor({{1.5, -0.5}}), {.splits = 1}), "row 0");
  for (const int64_t splits : {int64_t{0}, int64_t{21}, std::numeric_limits<int64_t>::min()})
    EXPECT_ERROR(ValueError, with({.splits = splits})(), "1 to 20 splits");
  EXPECT_ERROR(ValueError, with({.confident = 1.5})(), "confident");
  EXPECT_ERROR(ShapeError, with({.reference = tensor({1, 2, 3})})(), "reference [2]");
  EXPECT_ERROR(ValueError, with({.reference = tensor({0, 0})})(), "not all 0");
  EXPECT_ERROR(ValueError, with({.reference = tensor({3, -1})})(), "at least 0");
  EXPECT_ERROR(ShapeError, with({.labels = tensor({1})})(), "labels [20]");
  EXPECT_ERROR(DTypeError, with({.labels = zeros({20})})(), "labels");
  EXPECT_ERROR(ValueError, with({.labels = full({20}, 2, {.dtype = DType::kI64})})(), "0 to 1, got 2");
}

}  // namespace
}  // namespace gradus::metrics
