// AdaptiveLogSoftmaxWithLoss, composed of linear layers and log_softmax. log p(class of cluster i) is the head's
// log-probability of cluster i plus the cluster's own of the class.
#include "gradus/nn/layers/adaptive_softmax.h"

#include <cmath>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/softmax.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::nn {
namespace {

constexpr const char* kType = "AdaptiveLogSoftmaxWithLoss";

// Returns the elements of x [N,C] at columns [N].
Tensor pick(const Tensor& x, const Tensor& columns) {
  return squeeze(gather(x, 1, unsqueeze(columns, 1)), 1);
}

}  // namespace

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(Module* parent, std::string name, Options options)
    : ModuleWith(parent, std::move(name), std::move(options)) {
  add_clusters();
}
AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(Options options) : ModuleWith(std::move(options)) {
  add_clusters();
}

// Checks the options. Returns the number of classes in the head and of clusters.
int64_t AdaptiveLogSoftmaxWithLoss::head_size() const {
  const Options& o = options();
  const std::vector<int64_t>& cutoffs = *o.cutoffs;
  if (cutoffs.empty()) throw ValueError(kType, "expected at least one cutoff");
  for (size_t i = 0; i < cutoffs.size(); ++i)
    if (cutoffs[i] < 1 || cutoffs[i] >= o.n_classes || (i > 0 && cutoffs[i] <= cutoffs[i - 1]))
      throw ValueError(kType, "expected ascending cutoffs in [1, ", *o.n_classes, "), got ", cutoffs[i],
                       " as number ", i);
  if (!(o.div_value >= 1)) throw ValueError(kType, "expected div_value >= 1, got ", o.div_value);
  return cutoffs[0] + int64_t(cutoffs.size());
}

int64_t AdaptiveLogSoftmaxWithLoss::cluster_end(size_t i) const {
  const std::vector<int64_t>& cutoffs = *options().cutoffs;
  return i + 1 < cutoffs.size() ? cutoffs[i + 1] : *options().n_classes;
}

void AdaptiveLogSoftmaxWithLoss::add_clusters() {
  const Options& o = options();
  for (size_t i = 0; i < (*o.cutoffs).size(); ++i) {
    const int64_t hidden = int64_t(double(*o.in) / std::pow(o.div_value, double(i + 1)));
    Sequential& cluster = tail.add();
    cluster.add<Linear>({.in = *o.in, .out = hidden, .bias = false});
    cluster.add<Linear>({.in = hidden, .out = cluster_end(i) - (*o.cutoffs)[i], .bias = false});
  }
}

AdaptiveLogSoftmaxResult AdaptiveLogSoftmaxWithLoss::operator()(const Tensor& x_in, const Tensor& target_in) {
  return call([&] {
    const bool batch = x_in.dim() == 2;
    if ((x_in.dim() != 1 && !batch) || target_in.dim() != x_in.dim() - 1 || x_in.size(-1) != options().in ||
        (batch && target_in.size(0) != x_in.size(0)))
      throw ShapeError(kType, "expected x [N,", *options().in, "] and target [N], or without N, got ",
                       describe(x_in), " and ", describe(target_in));
    check_integers(kType, "class numbers", "target", target_in);
    const Tensor x = batch ? x_in : unsqueeze(x_in, 0);
    const Tensor target = gradus::to(batch ? target_in : unsqueeze(target_in, 0), DType::kI64);
    const std::vector<int64_t>& cutoffs = *options().cutoffs;
    // The class of the head, and the rows of each cluster with the log-probabilities of their targets.
    Tensor head_class = target;
    std::vector<std::pair<Tensor, Tensor>> of_clusters;
    for (size_t i = 0; i < cutoffs.size(); ++i) {
      const Tensor inside = logical_and(ge(target, cutoffs[i]), lt(target, cluster_end(i)));
      head_class = where(inside, cutoffs[0] + int64_t(i), head_class);
      const Tensor rows = squeeze(nonzero(inside), 1);
      if (rows.numel() == 0) continue;
      const Tensor classes = index_select(target, 0, rows) - cutoffs[i];
      of_clusters.emplace_back(rows, pick(log_softmax(tail[i](index_select(x, 0, rows)), 1), classes));
    }
    Tensor output = pick(log_softmax(head(x), 1), head_class);
    for (const auto& [rows, log_probs] : of_clusters) output = index_add(output, 0, rows, log_probs);
    const Tensor loss = neg(mean(output));
    return AdaptiveLogSoftmaxResult{batch ? output : squeeze(output, 0), loss};
  });
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& x) {
  return call([&] {
    const int64_t frequent = (*options().cutoffs)[0];
    const Tensor of_head = log_softmax(head(x), -1);
    std::vector<Tensor> parts{narrow(of_head, -1, 0, frequent)};
    for (size_t i = 0; i < tail.size(); ++i)
      parts.push_back(log_softmax(tail[i](x), -1) + narrow(of_head, -1, frequent + int64_t(i), 1));
    return cat(parts, -1);
  });
}

Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& x) { return argmax(log_prob(x), -1); }

template class ModuleWith<AdaptiveLogSoftmaxWithLossOptions>;
}  // namespace gradus::nn
