// Losses that require a margin between scores, similarities or distances. The mean of no elements is NaN.
// Targets and weights are constants of any dtype unless stated otherwise.
// Errors of all: ShapeError for shapes that do not fit together; DTypeError unless x
// is floating; DeviceError.
#pragma once

#include <functional>

#include "gradus/tensor/ops/losses/cross_entropy.h"  // Reduction
#include "gradus/tensor/tensor.h"

namespace gradus {

struct HingeEmbeddingLossOptions {
  double margin = 1;
  Reduction reduction = Reduction::kMean;
};
// Computes x where target is 1 and max(0, margin - x) where it is -1, for distances x.
// Shapes: x, target broadcasting -> [] or, for kNone, their shape.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target,
                            const HingeEmbeddingLossOptions& options = {});

struct MarginRankingLossOptions {
  double margin = 0;
  Reduction reduction = Reduction::kMean;
};
// Computes max(0, margin - target (a - b)); target 1 ranks a higher than b, -1 lower.
// Shapes: a, b and target broadcasting -> [] or, for kNone, their shape.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           const MarginRankingLossOptions& options = {});

struct CosineEmbeddingLossOptions {
  double margin = 0;
  Reduction reduction = Reduction::kMean;
};
// Computes 1 - cos(a, b) where target is 1 and max(0, cos(a, b) - margin) where it is -1.
// Shapes: a, b [N,D] and target [N], or [D] and [] -> [] or, for kNone, target's shape.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             const CosineEmbeddingLossOptions& options = {});

struct TripletMarginLossOptions {
  double margin = 1;
  double p = 2;       // of the distance's norm
  double eps = 1e-6;  // added to every difference
  bool swap = false;  // uses the smaller of the negative's distances to anchor and positive
  Reduction reduction = Reduction::kMean;
};
// Computes max(0, d(anchor, positive) - d(anchor, negative) + margin), d as pairwise_distance.
// Shapes: all [...,D], broadcasting -> [] or, for kNone, [...].
// Source: Balntas et al., "Learning local feature descriptors with triplets", BMVC 2016.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options = {});

struct TripletMarginWithDistanceLossOptions {
  std::function<Tensor(const Tensor&, const Tensor&)> distance = {};  // none: pairwise_distance
  double margin = 1;
  bool swap = false;
  Reduction reduction = Reduction::kMean;
};
// The same with a caller-defined distance.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& options = {});

struct MultilabelSoftMarginLossOptions {
  Tensor weight = {};  // [C]: of the classes
  Reduction reduction = Reduction::kMean;
};
// Computes the mean over classes of binary_cross_entropy_with_logits.
// Shapes: x, target [...,C] -> [] or, for kNone, [...].
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultilabelSoftMarginLossOptions& options = {});

struct MultiMarginLossOptions {
  int64_t p = 1;
  double margin = 1;
  Tensor weight = {};  // [C]: of the target's class
  Reduction reduction = Reduction::kMean;
};
// Computes sum_c max(0, margin - x[target] + x[c])^p / C over all classes but the target.
// Shapes: x [N,C] and target [N] class numbers, or [C] and [] -> [] or, for kNone, target's shape.
// Errors: also ValueError unless p is 1 or 2; IndexError for a target that is no class.
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginLossOptions& options = {});

}  // namespace gradus
