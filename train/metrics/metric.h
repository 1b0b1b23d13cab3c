// Metric: counts that batches add to, and that the ranks add up when the value is asked for.
//
//   metrics::Accuracy top1, top5({.k = 5});
//   metrics::ConfusionMatrix confusion({.classes = 10});
//   for (const data::Batch& b : test_loader) {
//     const Tensor scores = net(b.input);
//     top1.update(scores, b), top5.update(scores, b), confusion.update(scores, b);
//   }
//   std::cout << top1.compute() << ' ' << top5.compute() << '\n' << confusion.compute();
//
// compute() is collective: it is the value over the batches of all ranks, the same on each, whatever the
// number of ranks (counts to the last bit, sums of fractions to rounding). It changes nothing: updates may go
// on. Of a Batch, samples that came again to fill it up count once (Batch::padding). Nothing is recorded.
#pragma once

#include "gradus/data/dataset.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

namespace internal {

// Returns what a network made of the batch's samples, without the batch's padding; undefined as it is.
// Errors: ShapeError naming the metric.
Tensor without_padding(const char* metric, const Tensor& output, const data::Batch& batch);

}  // namespace internal

// What all metrics have.
class Metric {
 public:
  virtual ~Metric() = default;

  // Counts a batch. Shapes and
  // Errors: those of the metric's update; DTypeError, ShapeError, ValueError naming the metric.
  void update(const Tensor& output, const Tensor& target);
  // The same with the batch's target, without its padding: `output` is what the network made of batch.input.
  void update(const Tensor& output, const data::Batch& batch);
  // Forgets all batches of this rank.
  void reset();

 protected:
  // What was counted is a tensor like `zeros`, on the host.
  Metric(const char* name, Tensor zeros, dist::Group group);
  // Returns what a batch adds.
  virtual Tensor count(const Tensor& output, const Tensor& target) const = 0;
  // Adds up all ranks' counts. Collective.
  // Errors: those of all_reduce.
  Tensor total() const;
  const char* name() const { return name_; }

 private:
  const char* name_;
  Tensor counts_;
  dist::Group group_;
};

}  // namespace gradus::metrics
