// AdaptiveLogSoftmaxWithLoss: a softmax over many classes whose rare classes have smaller projections, as in torch.nn.
#pragma once

#include <vector>

#include "gradus/nn/containers.h"
#include "gradus/nn/layers/linear.h"
#include "gradus/nn/sequential.h"

namespace gradus::nn {

struct AdaptiveLogSoftmaxWithLossOptions {
  Required<int64_t, "in"> in;
  Required<int64_t, "n_classes"> n_classes;
  // The first class of each cluster, ascending. Classes are numbered by descending frequency; those before the first
  // cutoff are in the head.
  Required<std::vector<int64_t>, "cutoffs"> cutoffs;
  double div_value = 4;    // cluster i is projected to in / div_value^(i + 1) features
  bool head_bias = false;  // adds a bias to the head
};
extern template class ModuleWith<AdaptiveLogSoftmaxWithLossOptions>;

// output: the log-probability of each target; loss: minus their mean.
struct AdaptiveLogSoftmaxResult {
  Tensor output, loss;
};

// The head gives log-probabilities of the frequent classes and of the clusters, and each cluster those of its classes.
// Shapes: x [N,in], target of integers [N] -> output [N], loss []; or x [in], target [] -> both [].
// Errors of the constructor: ValueError for cutoffs that are none, not ascending, or not in [1, n_classes), and for
// div_value < 1.
// Source: Grave et al., "Efficient softmax approximation for GPUs", ICML 2017.
class AdaptiveLogSoftmaxWithLoss final : public ModuleWith<AdaptiveLogSoftmaxWithLossOptions> {
 public:
  AdaptiveLogSoftmaxWithLoss(Module* parent, std::string name, Options options);
  explicit AdaptiveLogSoftmaxWithLoss(Options options);

  Linear head{this, "head", {.in = *options().in, .out = head_size(), .bias = options().head_bias}};
  ModuleList<Sequential> tail{this, "tail"};

  // Runs clusters with targets alone, on the rows of these. Waits for the device.
  // Errors: ShapeError, DTypeError, DeviceError for arguments that do not fit; IndexError for a target outside of
  // [0, n_classes).
  AdaptiveLogSoftmaxResult operator()(const Tensor& x, const Tensor& target);
  // Returns the log-probabilities of all classes.
  // Shapes: x [...,in] -> [...,n_classes].
  Tensor log_prob(const Tensor& x);
  // Returns the most probable class, as i64.
  // Shapes: x [...,in] -> [...].
  Tensor predict(const Tensor& x);

 private:
  int64_t head_size() const;
  void add_clusters();
  int64_t cluster_end(size_t i) const;
};

}  // namespace gradus::nn
