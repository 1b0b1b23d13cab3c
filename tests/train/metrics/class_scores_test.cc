// Scores by a classifier: known cases and errors. Values: tests/golden/metrics.
#include "gradus/train/metrics/class_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus::metrics {
namespace {

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
