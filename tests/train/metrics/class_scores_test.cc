// Scores by a classifier: known cases and errors. Values: tests/golden/metrics.
#include "gradus/train/metrics/class_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradus/gradus.h"

namespace gradus::metrics {
namespace {

using testing::HasSubstr;

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

template <class E, class F> std::string error_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "no error of this type";
}

TEST(ClassScores, WhatDoesNotFitIsNamed) {
  const Tensor p = full({20, 2}, 0.5);
  const auto with = [&](ClassScoresOptions o) { return [=] { class_scores(p, o); }; };
  EXPECT_THAT(error_of<ValueError>([] { class_scores(Tensor()); }), HasSubstr("undefined"));
  EXPECT_THAT(error_of<ShapeError>([] { class_scores(zeros({3})); }), HasSubstr("[N,C]"));
  EXPECT_THAT(error_of<DTypeError>([] {
                class_scores(ones({3, 1}, {.dtype = DType::kI64}));
              }),
              HasSubstr("probabilities"));
  EXPECT_THAT(error_of<ValueError>([&] { class_scores(p * 1.01); }), HasSubstr("softmax(x, 1)"));
  EXPECT_THAT(error_of<ValueError>([&] { class_scores(p * std::nan("")); }), HasSubstr("row 0"));
  EXPECT_THAT(error_of<ValueError>([&] {
                class_scores(tensor({{1.5, -0.5}}), {.splits = 1});
              }),
              HasSubstr("row 0"));
  for (const int64_t splits : {int64_t{0}, int64_t{21}, std::numeric_limits<int64_t>::min()})
    EXPECT_THAT(error_of<ValueError>(with({.splits = splits})), HasSubstr("1 to 20 splits"));
  EXPECT_THAT(error_of<ValueError>(with({.confident = 1.5})), HasSubstr("confident"));
  EXPECT_THAT(error_of<ShapeError>(with({.reference = tensor({1, 2, 3})})), HasSubstr("reference [2]"));
  EXPECT_THAT(error_of<ValueError>(with({.reference = tensor({0, 0})})), HasSubstr("not all 0"));
  EXPECT_THAT(error_of<ValueError>(with({.reference = tensor({3, -1})})), HasSubstr("at least 0"));
  EXPECT_THAT(error_of<ShapeError>(with({.labels = tensor({1})})), HasSubstr("labels [20]"));
  EXPECT_THAT(error_of<DTypeError>(with({.labels = zeros({20})})), HasSubstr("labels"));
  EXPECT_THAT(error_of<ValueError>(with({.labels = full({20}, 2, {.dtype = DType::kI64})})),
              HasSubstr("0 to 1, got 2"));
}

}  // namespace
}  // namespace gradus::metrics
