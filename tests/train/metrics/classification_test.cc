// Metrics of classifiers against PyTorch (tests/golden/metrics.py), on any number of ranks.
#include "gradus/train/metrics/classification.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "gradus/gradus.h"
#include "gradus/tests/golden/golden.h"
#include "gradus/tests/support/error.h"

namespace gradus::metrics {
namespace {

const io::SafetensorsFile& file() {
  static const io::SafetensorsFile file = golden::load("metrics");
  return file;
}
Tensor golden(const std::string& name) { return file().at(name); }
double number(const std::string& name) { return golden(name).item<double>(); }

// On 1, 2 and 3 ranks (threads): updates the metric of check.make() with this rank's batches of five rows of
// the golden tensors, then calls check.compare(metric).
template <class Update, class Check>
void on_ranks(const std::string& output, const std::string& target, Update update, Check check) {
  for (const int world : {1, 2, 3})
    dist::run_ranks(world, [&] {
      const Tensor x = golden(output), y = golden(target);
      auto metric = check.make();
      for (int64_t at = 0, batch = 0; at < x.size(0); at += 5, ++batch) {
        if (batch % world != dist::get_rank()) continue;
        const int64_t size = std::min<int64_t>(5, x.size(0) - at);
        update(metric, narrow(x, 0, at, size), narrow(y, 0, at, size));
      }
      check.compare(metric);
      check.compare(metric);  // compute() has not changed the metric
    });
}

template <class Make, class Compare> struct Check {
  Make make;
  Compare compare;
};
template <class Make, class Compare> Check(Make, Compare) -> Check<Make, Compare>;

constexpr auto kUpdate = [](auto& metric, const Tensor& x, const Tensor& y) { metric.update(x, y); };

TEST(ClassificationMetrics, AccuracyIsPyTorchs) {
  for (const int64_t k : {1, 3, 7})
    on_ranks("scores", "target", kUpdate,
             Check{[&] { return Accuracy({.k = k}); },
                   [&](const Accuracy& m) { EXPECT_EQ(m.compute(), number("top" + std::to_string(k))); }});
}

TEST(ClassificationMetrics, AccuracyHasRulesForTiesAndNaN) {
  const double nan = std::nan("");
  const Tensor scores = reshape(tensor({1.0, 1.0, 0.0, nan, 2.0, 1.0, 0.0, nan, 1.0}), {3, 3});
  const auto of = [&](std::vector<int64_t> target, int64_t k) {
    Accuracy m({.k = k});
    m.update(scores, tensor(target, {3}));
    return m.compute();
  };
  EXPECT_DOUBLE_EQ(of({0, 1, 2}, 1),
                   1. / 3);  // of equal scores the first class ranks higher; NaN ranks highest
  EXPECT_DOUBLE_EQ(of({1, 1, 2}, 1), 0);
  EXPECT_DOUBLE_EQ(of({1, 1, 2}, 2), 1);
  EXPECT_DOUBLE_EQ(of({2, 0, 1}, 3), 1. / 3);  // a target whose score is NaN is wrong
}

TEST(ClassificationMetrics, ConfusionMatrixIsPyTorchs) {
  on_ranks("scores", "target", kUpdate,
           Check{[] { return ConfusionMatrix({.classes = 7}); },
                 [](const ConfusionMatrix& m) {
                   EXPECT_EQ(m.compute().dtype(), DType::kI64);
                   EXPECT_EQ(m.compute().to_vector<int64_t>(), golden("confusion").to_vector<int64_t>());
                 }});
  on_ranks(
      "scores", "target",
      [](ConfusionMatrix& m, const Tensor& x, const Tensor& y) { m.update(argmax(x, 1), to(y, DType::kU8)); },
      Check{[] { return ConfusionMatrix({.classes = 7}); },
            [](const ConfusionMatrix& m) {
              EXPECT_EQ(m.compute().to_vector<int64_t>(), golden("confusion").to_vector<int64_t>());
            }});
}

TEST(ClassificationMetrics, IoUIsPyTorchs) {
  on_ranks("masks/scores", "masks/target", kUpdate,
           Check{[] { return IoU({.classes = 5, .ignore_index = 255}); },
                 [](const IoU& m) {
                   EXPECT_NEAR(m.compute(), number("masks/mean_iou"), 1e-15);
                   const auto given = m.compute_per_class().to_vector<double>(),
                              expected = golden("masks/iou").to_vector<double>();
                   for (size_t i = 0; i < 4; ++i) EXPECT_EQ(given[i], expected[i]) << i;
                   EXPECT_TRUE(std::isnan(given[4]));
                 }});
}

TEST(ClassificationMetrics, PerplexityIsPyTorchs) {
  on_ranks("scores", "target", kUpdate,
           Check{[] { return Perplexity(); },
                 [](const Perplexity& m) {
                   EXPECT_NEAR(m.compute(), number("perplexity"), 1e-13);  // sums of 60 losses
                 }});
  on_ranks("scores", "ignored", kUpdate,
           Check{[] { return Perplexity(); },
                 [](const Perplexity& m) {
                   EXPECT_NEAR(m.compute(), number("perplexity_ignored"), 1e-13);
                   EXPECT_EQ(m.mean_loss(), std::log(m.compute())) << "to rounding";
                 }});
}

TEST(ClassificationMetrics, AUCIsPyTorchsToItsBins) {
  for (const int64_t bins : {10, 1000})
    on_ranks("binary/scores", "binary/target", kUpdate,
             Check{[&] { return AUC({.bins = bins}); },
                   [&](const AUC& m) {
                     EXPECT_NEAR(m.compute(), number("binary/area" + std::to_string(bins)), 1e-15);
                     EXPECT_LE(std::abs(m.compute() - number("binary/area")), m.compute_error() + 1e-15);
                   }});
}

TEST(ClassificationMetrics, AUCOfScoresAtTheEdges) {
  AUC m({.bins = 4, .low = -1, .high = 1});
  m.update(tensor({-7.0, -1.0, 1.0, 7.0}), tensor({0, 0, 1, 1}));
  EXPECT_EQ(m.compute(), 1);
  m.reset();
  m.update(tensor({0.5, 0.5}), tensor({0, 1}));
  EXPECT_EQ(m.compute(), 0.5);
  EXPECT_EQ(m.compute_error(), 0.5);
}

TEST(ClassificationMetrics, MeanWeighsBatchesByTheirSize) {
  dist::run_ranks(2, [] {
    Mean loss;
    if (dist::get_rank() == 0) loss.update(3, 2), loss.update(tensor({1.5f}), 4);
    if (dist::get_rank() == 1) loss.update(6);
    EXPECT_EQ(loss.compute(), 18. / 7);
    loss.reset();
    EXPECT_TRUE(std::isnan(loss.compute()));
  });
}

// On any number of ranks, samples that are repeated to fill the last batches count once.
TEST(ClassificationMetrics, PaddingCountsOnce) {
  const data::TensorDataset set(golden("scores"), golden("target"));
  for (const int world : {1, 2, 4, 7})
    dist::run_ranks(world, [&] {
      Accuracy m;
      ConfusionMatrix all({.classes = 7});
      for (const data::Batch& b : data::DataLoader(set, {.batch_size = 4, .uneven = data::Uneven::kPad}))
        m.update(b.input, b), all.update(b.input, b);
      EXPECT_EQ(m.compute(), number("top1")) << world;
      EXPECT_EQ(sum(all.compute()).item<int64_t>(), 60) << world;
    });
}

TEST(ClassificationMetrics, NothingIsRecordedAndNothingCountedIsNaN) {
  const Tensor scores = golden("scores");
  GradManager gm;
  gm.attach(scores);
  auto recording = gm.record();
  Perplexity perplexity;
  perplexity.update(scores * 2, golden("target"));
  EXPECT_THROW(gm.backward(scalar(perplexity.compute())), StateError);

  EXPECT_TRUE(std::isnan(Accuracy().compute()));
  EXPECT_TRUE(std::isnan(Perplexity().compute()));
  EXPECT_TRUE(std::isnan(IoU({.classes = 3}).compute()));
  EXPECT_TRUE(std::isnan(AUC().compute()));
  Accuracy ignored({.ignore_index = 1});
  ignored.update(zeros({2, 3}), ones({2}, {.dtype = DType::kI64}));
  ignored.update(zeros({0, 3}), zeros({0}, {.dtype = DType::kI64}));
  EXPECT_TRUE(std::isnan(ignored.compute()));
}

TEST(ClassificationMetrics, WhatDoesNotFitIsNamed) {
  const Tensor classes = zeros({4}, {.dtype = DType::kI64});
  Accuracy accuracy;
  EXPECT_ERROR(Error, accuracy.update(zeros({4, 3}), zeros({4})), "[Accuracy] expected target of integers");
  EXPECT_ERROR(Error, accuracy.update(zeros({5, 3}), classes), "expected target [5]");
  EXPECT_ERROR(Error, accuracy.update(zeros({4}), classes), "[N,C,...]");
  EXPECT_ERROR(Error, accuracy.update(zeros({4, 3}), classes + 3), "expected target of 0 to 2, got 3");
  EXPECT_ERROR(Error, accuracy.update(Tensor(), classes), "output is undefined");
  EXPECT_ERROR(Error, Accuracy({.k = 0}), "k of at least 1");
  ConfusionMatrix confusion({.classes = 3});
  EXPECT_ERROR(Error, confusion.update(zeros({4, 5}), classes), "scores of 3 classes");
  EXPECT_ERROR(Error, confusion.update(classes + 5, classes), "expected output of 0 to 2, got 5");
  EXPECT_ERROR(Error, ConfusionMatrix({.classes = 0}), "got 0");
  EXPECT_ERROR(Error, IoU({.classes = int64_t{1} << 40}), "classes");
  AUC auc;
  EXPECT_ERROR(Error, auc.update(zeros({4}), classes + 2), "0 and 1");
  EXPECT_ERROR(Error, auc.update(full({4}, std::nan("")), classes), "NaN");
  EXPECT_ERROR(Error, AUC({.low = 1, .high = 1}), "low < high");
  // The rejected updates have not been counted.
  accuracy.update(zeros({4, 3}), classes);
  EXPECT_EQ(accuracy.compute(), 1);
}

}  // namespace
}  // namespace gradus::metrics
