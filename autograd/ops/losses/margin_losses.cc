// Margin losses, as in torch.nn.functional. They have no backward rules, because they are composed of
// differentiable ops. Each function first opens an OpCall, which names the function in errors and rejects
// undefined arguments. If the thread is under autocast, the function then calls itself once with its 16-bit
// arguments cast to f32.
#include "gradus/autograd/ops/losses/margin_losses.h"

#include <limits>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/linalg/distance.h"
#include "gradus/autograd/ops/losses/cross_entropy.h"
#include "gradus/autograd/ops/losses/loss_reduction.h"
#include "gradus/autograd/ops/losses/pointwise_losses.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using autograd::reduce_losses;

// Returns max(0, x). Its gradient is 0 where x is 0.
Tensor hinge(const Tensor& x) { return clamp(x, 0); }

// Errors: DTypeError unless all three are floating point; ShapeError unless they have the same number of dims, at
// least 1, and broadcast.
void check_triplet(const char* op, const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  check_floating(op, "anchor", anchor);
  check_floating(op, "positive", positive);
  check_floating(op, "negative", negative);
  if (anchor.dim() != positive.dim() || anchor.dim() != negative.dim() || anchor.dim() < 1)
    throw ShapeError(op, "expected vectors with the same number of dims, got anchor ", describe(anchor),
                     ", positive ", describe(positive), ", negative ", describe(negative));
  broadcast_shapes(broadcast_shapes(anchor.shape(), positive.shape(), op), negative.shape(), op);
}

// Returns the reduced max(0, d(anchor, positive) - d(anchor, negative) + margin) with d = distance. `swap`
// replaces d(anchor, negative) by min(d(anchor, negative), d(positive, negative)).
template <class Distance>
Tensor triplet(const char* op, const Tensor& anchor, const Tensor& positive, const Tensor& negative,
               const Distance& distance, bool swap, double margin, Reduction reduction) {
  const Tensor positive_distance = distance(anchor, positive);
  Tensor negative_distance = distance(anchor, negative);
  if (swap) negative_distance = minimum(negative_distance, distance(positive, negative));
  return reduce_losses(op, hinge(positive_distance - negative_distance + margin), reduction);
}

}  // namespace

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, const HingeEmbeddingLossOptions& o) {
  const OpCall call("hinge_embedding_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"hinge_embedding_loss"}) return hinge_embedding_loss(cast(x), cast(target), o);
  const char* op = "hinge_embedding_loss";
  check_floating(op, "x", x);
  autograd::check_same_device(op, "x", x, "target", target);
  broadcast_shapes(x.shape(), target.shape(), op);
  // loss = x where the target is 1, max(0, margin - x) where it is -1. Where the target is neither, the loss is
  // the sum of both terms, as in PyTorch.
  const Tensor losses = where(ne(target, 1), hinge(o.margin - x), 0) + where(ne(target, -1), x, 0);
  return reduce_losses(op, losses, o.reduction);
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           const MarginRankingLossOptions& o) {
  const OpCall call("margin_ranking_loss", {{"a", a}, {"b", b}, {"target", target}});
  if (autograd::Casting cast{"margin_ranking_loss"})
    return margin_ranking_loss(cast(a), cast(b), cast(target), o);
  const char* op = "margin_ranking_loss";
  check_floating(op, "a", a);
  check_floating(op, "b", b);
  autograd::check_same_device(op, "a", a, "b", b);
  autograd::check_same_device(op, "a", a, "target", target);
  broadcast_shapes(broadcast_shapes(a.shape(), b.shape(), op), target.shape(), op);
  return reduce_losses(op, hinge(o.margin - target * (a - b)), o.reduction);
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             const CosineEmbeddingLossOptions& o) {
  const OpCall call("cosine_embedding_loss", {{"a", a}, {"b", b}, {"target", target}});
  if (autograd::Casting cast{"cosine_embedding_loss"})
    return cosine_embedding_loss(cast(a), cast(b), cast(target), o);
  const char* op = "cosine_embedding_loss";
  check_floating(op, "a", a);
  check_floating(op, "b", b);
  autograd::check_same_device(op, "a", a, "b", b);
  autograd::check_same_device(op, "a", a, "target", target);
  if ((a.dim() != 1 && a.dim() != 2) || a.shape() != b.shape() || target.dim() != a.dim() - 1 ||
      (a.dim() == 2 && target.size(0) != a.size(0)))
    throw ShapeError(op, "expected a and b [N,D] with target [N], or [D] with [], got a ", describe(a),
                     ", b ", describe(b), ", target ", describe(target));
  // cos(a, b) = sum a b / sqrt((sum a^2 + eps) (sum b^2 + eps)), as in PyTorch.
  constexpr double eps = 1e-12;  // would round to 0 in f16, so the cosine of 16-bit inputs is computed in f32
  const DType type = promote(a.dtype(), b.dtype());
  const Tensor x = to(a, promote(type, DType::kF32)), y = to(b, promote(type, DType::kF32));
  const Tensor squares = (sum(square(x), -1) + eps) * (sum(square(y), -1) + eps);
  const Tensor cosine = to(sum(x * y, -1) / sqrt(squares), type);
  // Targets other than 1 and -1 give a loss of 0.
  const Tensor alike = where(eq(target, 1), 1 - cosine, 0);
  return reduce_losses(op, alike + where(eq(target, -1), hinge(cosine - o.margin), 0), o.reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& o) {
  const OpCall call("triplet_margin_loss",
                    {{"anchor", anchor}, {"positive", positive}, {"negative", negative}});
  if (autograd::Casting cast{"triplet_margin_loss"})
    return triplet_margin_loss(cast(anchor), cast(positive), cast(negative), o);
  const char* op = "triplet_margin_loss";
  check_triplet(op, anchor, positive, negative);
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return pairwise_distance(a, b, {.p = o.p, .eps = o.eps});
  };
  return triplet(op, anchor, positive, negative, distance, o.swap, o.margin, o.reduction);
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& o) {
  const OpCall call("triplet_margin_with_distance_loss",
                    {{"anchor", anchor}, {"positive", positive}, {"negative", negative}});
  if (autograd::Casting cast{"triplet_margin_with_distance_loss"})
    return triplet_margin_with_distance_loss(cast(anchor), cast(positive), cast(negative), o);
  const char* op = "triplet_margin_with_distance_loss";
  check_triplet(op, anchor, positive, negative);
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return o.distance ? o.distance(a, b) : pairwise_distance(a, b);
  };
  return triplet(op, anchor, positive, negative, distance, o.swap, o.margin, o.reduction);
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultilabelSoftMarginLossOptions& o) {
  const OpCall call("multilabel_soft_margin_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"multilabel_soft_margin_loss"})
    return multilabel_soft_margin_loss(cast(x), cast(target), autograd::with_cast_weight(cast, o));
  const char* op = "multilabel_soft_margin_loss";
  check_floating(op, "x", x);
  autograd::check_same_device(op, "x", x, "target", target);
  if (x.dim() < 1 || x.shape() != target.shape())
    throw ShapeError(op, "expected x and target [...,C] of one shape, got x ", describe(x), ", target ",
                     describe(target));
  if (o.weight.defined() && o.weight.shape() != Shape{x.size(-1)})
    throw ShapeError(op, "expected a weight [", x.size(-1), "], got ", describe(o.weight));
  const Tensor labels = is_floating(target.dtype()) ? target : to(target, x.dtype());
  Tensor losses = binary_cross_entropy_with_logits(x, labels, {.reduction = Reduction::kNone});
  if (o.weight.defined()) losses = losses * o.weight;
  return reduce_losses(op, mean(losses, -1), o.reduction);
}

Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, const MultilabelMarginLossOptions& o) {
  const OpCall call("multilabel_margin_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"multilabel_margin_loss"})
    return multilabel_margin_loss(cast(x), cast(target), o);
  const char* op = "multilabel_margin_loss";
  check_floating(op, "x", x);
  autograd::check_same_device(op, "x", x, "target", target);
  if ((x.dim() != 1 && x.dim() != 2) || x.shape() != target.shape() || x.size(-1) == 0)
    throw ShapeError(op, "expected x and target [N,C] or [C] of one shape with C >= 1, got x ", describe(x),
                     ", target ", describe(target));
  check_integers(op, "class numbers", "target", target);
  const int64_t classes = x.size(-1);
  const Tensor scores = autograd::at_least_f32(x), numbers = to(target, DType::kI64);
  const Tensor listed = ge(cummin(numbers, -1).values, 0);  // bool: before the first negative number
  const Tensor index = where(listed, numbers, 0);
  const Tensor is_target = gt(scatter_add(zeros_like(index), -1, index, to(listed, DType::kI64)), 0);
  // The largest number of targets of a sample.
  int64_t k = classes;
  if (x.device().type != DeviceType::kMeta) k = x.numel() == 0 ? 0 : amax(sum(listed, -1)).item<int64_t>();
  const Tensor target_scores = gather(scores, -1, narrow(index, -1, 0, k));
  const Tensor excess = hinge(1 - unsqueeze(target_scores, -1) + unsqueeze(scores, -2));  // [N,k,C]
  const Tensor counts =
      logical_and(unsqueeze(narrow(listed, -1, 0, k), -1), logical_not(unsqueeze(is_target, -2)));
  const Tensor losses = sum(where(counts, excess, 0), {-2, -1}) / double(classes);
  return reduce_losses(op, to(losses, x.dtype()), o.reduction);
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginLossOptions& o) {
  const OpCall call("multi_margin_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"multi_margin_loss"})
    return multi_margin_loss(cast(x), cast(target), autograd::with_cast_weight(cast, o));
  const char* op = "multi_margin_loss";
  check_floating(op, "x", x);
  autograd::check_same_device(op, "x", x, "target", target);
  if ((x.dim() != 1 && x.dim() != 2) || target.dim() != x.dim() - 1 ||
      (x.dim() == 2 && target.size(0) != x.size(0)))
    throw ShapeError(op, "expected x [N,C] with target [N], or [C] with [], got x ", describe(x), ", target ",
                     describe(target));
  const int64_t classes = x.size(-1);
  if (classes == 0) throw ShapeError(op, "there are no classes: x ", describe(x));
  check_integers(op, "class numbers", "target", target);
  if (o.p != 1 && o.p != 2) throw ValueError(op, "p must be 1 or 2, got ", o.p);
  if (o.weight.defined() && o.weight.shape() != Shape{classes})
    throw ShapeError(op, "expected a weight [", classes, "], got ", describe(o.weight));

  // loss = weight[t] / C * sum over classes c != t of max(0, margin - x[t] + x[c])^p, where t is the target.
  const Tensor target_class = to(target, DType::kI64);
  const Tensor others =
      ne(arange(classes, {.dtype = DType::kI64, .device = x.device()}), unsqueeze(target_class, -1));
  // -x[target]. Computed by nll_loss, because nll_loss throws IndexError for a target outside [0, C). nll_loss
  // would not check a target equal to ignore_index, here the smallest i64, so negative targets are clamped to -1.
  const Tensor minus_x =
      nll_loss(x, clamp(target_class, -1),
               {.reduction = Reduction::kNone, .ignore_index = std::numeric_limits<int64_t>::min()});
  const Tensor excess = hinge(x + unsqueeze(minus_x, -1) + o.margin);
  const Tensor terms = where(others, o.p == 1 ? excess : square(excess), 0);
  Tensor losses = mean(terms, -1);  // the sum could overflow in f16
  if (o.weight.defined()) losses = losses * sum(where(others, 0, o.weight), -1);
  return reduce_losses(op, losses, o.reduction);
}

}  // namespace gradus
