// Margin losses of scores, similarities and distances, as in torch.nn.functional. Each loss is reduced as
// options.reduction says; the mean of no elements is NaN. Targets and weights may have any dtype unless stated
// otherwise. All floating inputs are differentiable, also targets and weights that enter a formula as factors; a
// target that is only compared with 1 and -1 has no gradient.
// Errors of all: ShapeError for shapes that do not match; DTypeError unless the scores, vectors or distances are
// floating; ValueError for Reduction::kBatchMean; DeviceError for inputs on different devices.
#pragma once

#include <functional>

#include "gradus/tensor/ops/losses/cross_entropy.h"  // Reduction
#include "gradus/tensor/tensor.h"

namespace gradus {

struct HingeEmbeddingLossOptions {
  double margin = 1;
  Reduction reduction = Reduction::kMean;
};
// For distances x: loss = x where target is 1, max(0, margin - x) where target is -1, else the sum of both.
// Shapes: x, target broadcasting -> [] or, for kNone, their shape.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target,
                            const HingeEmbeddingLossOptions& options = {});

struct MarginRankingLossOptions {
  double margin = 0;
  Reduction reduction = Reduction::kMean;
};
// loss = max(0, margin - target (a - b)); target 1: a should be larger than b, -1: smaller.
// Shapes: a, b and target broadcasting -> [] or, for kNone, their shape.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           const MarginRankingLossOptions& options = {});

struct CosineEmbeddingLossOptions {
  double margin = 0;
  Reduction reduction = Reduction::kMean;
};
// loss = 1 - cos(a, b) where target is 1, max(0, cos(a, b) - margin) where target is -1, else 0.
// Shapes: a, b [N,D] and target [N], or [D] and [] -> [] or, for kNone, target's shape.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             const CosineEmbeddingLossOptions& options = {});

struct TripletMarginLossOptions {
  double margin = 1;
  double p = 2;       // exponent of the norm
  double eps = 1e-6;  // added to every difference
  bool swap = false;  // replaces d(anchor, negative) by min(d(anchor, negative), d(positive, negative))
  Reduction reduction = Reduction::kMean;
};
// loss = max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is pairwise_distance.
// Shapes: all [...,D], broadcasting -> [] or, for kNone, [...].
// Source: Balntas et al., "Learning local feature descriptors with triplets", BMVC 2016.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options = {});

struct TripletMarginWithDistanceLossOptions {
  std::function<Tensor(const Tensor&, const Tensor&)> distance = {};  // empty: pairwise_distance
  double margin = 1;
  bool swap = false;
  Reduction reduction = Reduction::kMean;
};
// triplet_margin_loss with d(a, b) = options.distance(a, b), which returns [...] for a, b [...,D].
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& options = {});

struct MultilabelSoftMarginLossOptions {
  Tensor weight = {};  // [C]: weight of each class; undefined: 1
  Reduction reduction = Reduction::kMean;
};
// loss = mean over classes c of weight[c] * binary_cross_entropy_with_logits(x[...,c], target[...,c]).
// Shapes: x, target [...,C] -> [] or, for kNone, [...].
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultilabelSoftMarginLossOptions& options = {});

struct MultilabelMarginLossOptions {
  Reduction reduction = Reduction::kMean;
};
// loss = sum over targets t, and over classes c that are no target, of max(0, 1 - (x[t] - x[c])) / C. The targets of
// a sample are the class indices before the first negative number. Waits for the device.
// Shapes: x [N,C] and target [N,C] of integers, or both [C] -> [] or, for kNone, [N] or [].
// Errors: also IndexError for a target of C or more; ShapeError for no classes.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target,
                              const MultilabelMarginLossOptions& options = {});

struct MultiMarginLossOptions {
  int64_t p = 1;
  double margin = 1;
  Tensor weight = {};  // [C]: weight of the target's class; undefined: 1
  Reduction reduction = Reduction::kMean;
};
// loss = weight[target] * sum over classes c != target of max(0, margin - x[target] + x[c])^p / C.
// Shapes: x [N,C] and target [N] of class indices, or [C] and [] -> [] or, for kNone, target's shape.
// Errors: also ValueError unless p is 1 or 2; DTypeError unless target is of an integer dtype; IndexError for a
// target outside [0, C).
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginLossOptions& options = {});

}  // namespace gradus
