// Metric and Mean: each rank adds counts of its batches on the host; total() and compute() sum them over the
// ranks of the group by an all-reduce, without changing this rank's counts.
#include "gradus/train/metrics/metric.h"

#include <limits>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::metrics {

Tensor internal::without_padding(const char* metric, const Tensor& output, const data::Batch& batch) {
  if (output.defined() && (output.dim() == 0 || output.size(0) != batch.size()))
    throw ShapeError(metric, "expected the output of ", batch.size(), " samples: output ", describe(output));
  return batch.padding == 0 || !output.defined() ? output
                                                 : narrow(output, 0, 0, batch.size() - batch.padding);
}

Metric::Metric(const char* name, Tensor zeros, dist::Group group)
    : name_(name), counts_(std::move(zeros)), group_(std::move(group)) {}

void Metric::update(const Tensor& output, const Tensor& target) {
  const auto off = no_record();
  if (!output.defined() || !target.defined())
    throw ValueError(name_, output.defined() ? "target" : "output", " is undefined");
  counts_ = counts_ + raw::to(count(output, target), kCPU);
}

void Metric::update(const Tensor& output, const data::Batch& batch) {
  const auto off = no_record();
  update(internal::without_padding(name_, output, batch),
         internal::without_padding(name_, batch.target, batch));
}

void Metric::reset() { counts_ = zeros_like(counts_); }

Tensor Metric::total() const {
  const Tensor all = raw::clone(counts_);
  dist::all_reduce(all, {.group = group_});
  return all;
}

double Mean::compute() const {
  const Tensor all = tensor({sum_, double(count_)});
  dist::all_reduce(all, {.group = group_});
  const std::vector<double> n = all.to_vector<double>();
  return n[1] > 0 ? n[0] / n[1] : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace gradus::metrics
