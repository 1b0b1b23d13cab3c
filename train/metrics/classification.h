// Metrics of classifiers: accuracy, confusion matrix, intersection over union, perplexity, area under the ROC
// curve. Their base class is in gradus/train/metrics/metric.h: update() adds a batch; compute...() and
// mean_loss() are collective over `group`, by default all ranks. Errors of update(): DTypeError, ShapeError,
// ValueError for targets outside [0, C) that are not ignore_index.
#pragma once

#include <cstdint>
#include <optional>

#include "gradus/tensor/base/required.h"
#include "gradus/train/metrics/metric.h"

namespace gradus::metrics {

struct AccuracyOptions {
  int64_t k = 1;                             // the target must be among the k highest scores
  std::optional<int64_t> ignore_index = {};  // target that is not counted
  dist::Group group = {};
};

// Top-k accuracy. Of equal scores that of the lower class ranks higher. NaN ranks above all numbers; a target
// whose score is NaN is wrong.
// Shapes: update(scores[N,C,...], target i[N,...]).
class Accuracy final : public Metric {
 public:
  explicit Accuracy(AccuracyOptions options = {});  // Errors: ValueError for k < 1
  // Returns a fraction in [0, 1]; NaN without targets.
  double compute() const;

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  AccuracyOptions options_;
};

namespace internal {

// Returns bool[N]: whether the target of each row is among the k highest scores, as in Accuracy. Records nothing.
// Shapes: scores [N,C] of floating point, target i64[N].
Tensor in_top_k(const Tensor& scores, const Tensor& target, int64_t k);

}  // namespace internal

struct ConfusionMatrixOptions {
  Required<int64_t, "classes"> classes;
  std::optional<int64_t> ignore_index = {};
  dist::Group group = {};
};

// Counts of pairs (target, prediction).
// Shapes: update(scores[N,C,...], target i[N,...]), or update(classes i[N,...], target i[N,...]).
class ConfusionMatrix : public Metric {
 public:
  // Errors: ValueError for classes outside [1, 32768].
  explicit ConfusionMatrix(ConfusionMatrixOptions options) : ConfusionMatrix("ConfusionMatrix", options) {}
  // Returns i64[C,C]: rows are targets, columns are predictions.
  Tensor compute() const { return total(); }

 protected:
  ConfusionMatrix(const char* name, const ConfusionMatrixOptions& options);

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  ConfusionMatrixOptions options_;
};

using IoUOptions = ConfusionMatrixOptions;

// Intersection over union (Jaccard index) of each class: TP / (TP + FN + FP). For segmentation: scores
// [N,C,H,W], masks i[N,H,W].
// Shapes: as of ConfusionMatrix.
class IoU final : public ConfusionMatrix {
 public:
  explicit IoU(IoUOptions options) : ConfusionMatrix("IoU", options) {}  // Errors: as ConfusionMatrix
  // Returns the mean over classes that occur as target or prediction; NaN without any.
  double compute() const;
  // Returns f64[C], NaN for classes that do not occur.
  Tensor compute_per_class() const;
};

struct PerplexityOptions {
  int64_t ignore_index = -100;
  dist::Group group = {};
};

// exp(mean cross-entropy of the targets).
// Shapes: update(scores[N,C,...], target i[N,...]).
class Perplexity final : public Metric {
 public:
  explicit Perplexity(PerplexityOptions options = {});
  // Returns a number >= 1; NaN without targets.
  double compute() const;
  double mean_loss() const;  // log(compute())

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  PerplexityOptions options_;
};

struct AUCOptions {
  int64_t bins = 1000;
  double low = 0, high = 1;  // range of scores; others count in the first or the last bin
  dist::Group group = {};
};

// Area under the ROC curve: P(score of class 1 > score of class 0) + P(equal scores) / 2. Scores in one of
// the `bins` bins of [low, high] count as equal.
// Shapes: update(scores[...], target[...] of zeros and ones).
class AUC final : public Metric {
 public:
  // Errors: ValueError for bins outside [1, 2^24], unless low < high, and unless both are finite.
  explicit AUC(AUCOptions options = {});
  // Returns the area in [0, 1]; NaN unless both classes occur.
  double compute() const;
  // Returns the maximum error from binning: half the fraction of pairs in one bin.
  double compute_error() const;

 private:
  Tensor count(const Tensor& output, const Tensor& target) const override;
  AUCOptions options_;
};

}  // namespace gradus::metrics
