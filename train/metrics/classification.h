// Metrics of classifiers: accuracy, confusion matrix, intersection over union, perplexity, area under the
// ROC curve. What they have in common: gradus/train/metrics/metric.h.
#pragma once

#include <cstdint>
#include <optional>

#include "gradus/tensor/base/required.h"
#include "gradus/train/metrics/metric.h"

namespace gradus::metrics {

struct AccuracyOptions {
  int64_t k = 1;  // right when the target is among the k classes of the highest scores
  std::optional<int64_t> ignore_index = {};  // targets that do not count
  dist::Group group = {};
};

// The share of targets that are right. Of classes with equal scores those of lower numbers come first; a NaN
// comes before all numbers, and a target whose own score is NaN is wrong.
// Shapes: update(scores[N,C,...], target i[N,...]).
class Accuracy final : public Metric {
 public:
  explicit Accuracy(AccuracyOptions options = {});  // Errors: ValueError for k < 1
  // Returns the share in [0, 1]; NaN for no targets.
  double compute() const;

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  AccuracyOptions options_;
};

struct ConfusionMatrixOptions {
  Required<int64_t, "classes"> classes;
  std::optional<int64_t> ignore_index = {};
  dist::Group group = {};
};

// How often each class was taken for each.
// Shapes: update(scores[N,C,...], target i[N,...]), or update(classes i[N,...], target i[N,...]).
class ConfusionMatrix final : public Metric {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options);  // Errors: ValueError for classes < 1
  // Returns i64[C,C]: rows are targets, columns what was predicted.
  Tensor compute() const { return total(); }

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  ConfusionMatrixOptions options_;
};

struct IoUOptions {
  Required<int64_t, "classes"> classes;
  std::optional<int64_t> ignore_index = {};
  dist::Group group = {};
};

// Intersection over union, the Jaccard index, of the predicted and the true place of each class: hits / (hits
// + misses + false alarms). For segmentation: scores [N,C,H,W], masks i[N,H,W].
// Shapes: as of ConfusionMatrix.
class IoU final : public Metric {
 public:
  explicit IoU(IoUOptions options);  // Errors: ValueError for classes < 1
  // Returns the mean over classes that occur, as target or prediction; NaN if none does.
  double compute() const;
  // Returns f64[C], NaN for classes that do not occur.
  Tensor compute_per_class() const;

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  IoUOptions options_;
};

struct PerplexityOptions {
  int64_t ignore_index = -100;
  dist::Group group = {};
};

// e to the mean cross entropy of the targets: of how many equally likely tokens a language model
// seems to choose.
// Shapes: update(scores[N,C,...], target i[N,...]).
class Perplexity final : public Metric {
 public:
  explicit Perplexity(PerplexityOptions options = {});
  // Returns a number of at least 1; NaN for no targets.
  double compute() const;
  // Returns its logarithm.
  double mean_loss() const;

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  PerplexityOptions options_;
};

struct AUCOptions {
  int64_t bins = 1000;
  double low = 0, high = 1;  // of scores; those outside count as the first or the last bin's
  dist::Group group = {};
};

// The area under the ROC curve: how often a sample of class 1 has a higher score than one of class 0, ties
// being half. Scores are told apart by bins of (high - low) / bins.
// Shapes: update(scores[...], target[...] of zeros and ones).
class AUC final : public Metric {
 public:
  // Errors: ValueError for bins < 1, and unless low < high are finite.
  explicit AUC(AUCOptions options = {});
  // Returns the area in [0, 1]; NaN unless there are both classes.
  double compute() const;
  // Returns how far from the area of unbinned scores it may be: half the share of pairs that
  // fell into one bin.
  double compute_error() const;

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  AUCOptions options_;
};

}  // namespace gradus::metrics
