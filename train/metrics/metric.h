// Metric: accumulates counts over batches, and reduces them over ranks in compute().
//
//   metrics::Accuracy top1, top5({.k = 5});
//   metrics::ConfusionMatrix confusion({.classes = 10});
//   for (const data::Batch& b : test_loader) {
//     const Tensor scores = net(b.input);
//     top1.update(scores, b), top5.update(scores, b), confusion.update(scores, b);
//   }
//   std::cout << top1.compute() << ' ' << top5.compute() << '\n' << confusion.compute();
//
// compute() is collective, and returns the value over the batches of all ranks: for any number of ranks equal
// (sums of fractions up to rounding). Updates may continue. Repeated samples of a batch (Batch::padding) are
// not counted. Nothing is recorded for a backward.
#pragma once

#include <cstdint>

#include "gradus/data/dataset.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::metrics {
namespace internal {

// Returns the output without the rows of the batch's padding, or an undefined output unchanged.
// Errors: ShapeError with the metric.
Tensor without_padding(const char* metric, const Tensor& output, const data::Batch& batch);

}  // namespace internal

// The base class of metrics whose state is a tensor of counts that batches and ranks add to. Not thread-safe.
class Metric {
 public:
  virtual ~Metric() = default;

  // Adds a batch. The metric defines the shapes.
  // Errors: DTypeError, ShapeError, ValueError with the metric.
  void update(const Tensor& output, const Tensor& target);
  // The same for the network's output for batch.input, with batch.target, without the padding.
  void update(const Tensor& output, const data::Batch& batch);
  // Removes all batches of this rank.
  void reset();

 protected:
  // The counts have the shape and dtype of `zeros`, and are on the host. `name` is kept, so it is a literal.
  Metric(const char* name, Tensor zeros, dist::Group group);
  // Returns the counts of a batch, on any device, in the shape and dtype of `zeros`. Checks the arguments,
  // which are defined.
  virtual Tensor count(const Tensor& output, const Tensor& target) const = 0;
  // Returns the counts of all ranks. Collective.
  // Errors: those of all_reduce.
  Tensor total() const;
  const char* name() const { return name_; }

 private:
  const char* name_;
  Tensor counts_;
  dist::Group group_;
};

struct MeanOptions {
  dist::Group group = {};
};

// The mean of numbers over batches and ranks.
class Mean {
 public:
  explicit Mean(MeanOptions options = {}) : group_(options.group) {}
  // Adds the mean of `count` samples, for example the loss of a batch with its size().
  void update(double value, int64_t count = 1) { sum_ += value * double(count), count_ += count; }
  void update(const Tensor& value, int64_t count = 1) { update(value.item<double>(), count); }
  void reset() { sum_ = 0, count_ = 0; }
  // Returns the mean; NaN without samples. Collective.
  double compute() const;

 private:
  dist::Group group_;
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace gradus::metrics
