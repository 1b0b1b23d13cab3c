// Cross-entropy and negative log-likelihood with class indices (fused kernels) or class probabilities
// (composed of log_softmax).
#include "gradus/autograd/ops/losses/cross_entropy.h"

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/losses/loss_reduction.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/softmax.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using autograd::at_least_f32;
using autograd::has_16_bits;

// Returns cross_entropy, or nll_loss if spec.log_probs is set, for a target of class indices. Computed by one
// kernel, whose stats and total the rule saves. The loss is f32 if x is of 16 bits, which is for GPUs alone.
Tensor fused_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                           const raw::CrossEntropySpec& spec) {
  const char* op = spec.log_probs ? "nll_loss" : "cross_entropy";
  if (autograd::is_tracked(weight))
    throw StateError(
        op, "has no gradient for its weight, which a recording tracks; detach(weight) makes it a constant");
  const raw::CrossEntropyResult forward = raw::cross_entropy(x, target, weight, spec);
  if (Recorder r{op, x})
    r.record(forward.loss, wrt(x, [x = r.save(x), target = r.save(target), weight, spec,
                                   stats = forward.stats, total = forward.total](const Tensor& dy) {
               return gradus::cross_entropy_grad(dy, x.get(), target.get(), weight, {{}, stats, total}, spec);
             }));
  return forward.loss;
}

// The same with x's dtype as that of the loss.
Tensor cross_entropy_of_indices(const Tensor& x, const Tensor& target, const Tensor& weight,
                                const raw::CrossEntropySpec& spec) {
  if (spec.reduction == Reduction::kBatchMean)
    throw ValueError(spec.log_probs ? "nll_loss" : "cross_entropy",
                     "takes no reduction kBatchMean; kl_div does");
  if (!has_16_bits(x)) return fused_cross_entropy(x, target, weight, spec);
  const Tensor scores = x.device().type == DeviceType::kCUDA ? x : at_least_f32(x);
  return to(fused_cross_entropy(scores, target, at_least_f32(weight), spec), x.dtype());
}

// Returns cross_entropy for a target of class probabilities: -sum_c a_c log_softmax(x)_c, reduced.
Tensor cross_entropy_of_probabilities(const Tensor& x, const Tensor& target, const CrossEntropyOptions& o) {
  const char* op = "cross_entropy";
  if (x.dim() < 1) throw ShapeError(op, "expected scores [N,C,...] or [C], got x ", describe(x));
  if (target.shape() != x.shape()) {
    Shape index_shape = x.shape();
    index_shape.erase(x.dim() == 1 ? 0 : 1);
    if (target.shape() == index_shape) check_integers(op, "class numbers", "target", target);
    throw ShapeError(op, "expected class numbers i64", index_shape, " or probabilities ", x.dtype(),
                     x.shape(), " for x ", describe(x), ", got target ", describe(target));
  }
  check_floating(op, "x", x);
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    throw ValueError(op, "expected label_smoothing in [0, 1], got ", o.label_smoothing);
  if (has_16_bits(x)) {
    const CrossEntropyOptions wide{o.reduction, at_least_f32(o.weight), o.ignore_index, o.label_smoothing};
    return to(cross_entropy_of_probabilities(at_least_f32(x), at_least_f32(target), wide), x.dtype());
  }
  const int64_t dim = x.dim() == 1 ? 0 : 1, classes = x.size(dim);
  if (classes == 0) throw ShapeError(op, "there are no classes: x ", describe(x));
  if (o.weight.defined() && (o.weight.shape() != Shape{classes} || o.weight.dtype() != x.dtype()))
    throw ShapeError(op, "expected a weight ", x.dtype(), "[", classes, "], got ", describe(o.weight));
  Tensor a = target;
  if (o.label_smoothing > 0) a = a * (1 - o.label_smoothing) + o.label_smoothing / double(classes);
  if (o.weight.defined()) {
    Shape shape = Dims::filled(x.dim(), 1);
    shape[static_cast<int>(dim)] = classes;
    a = a * reshape(o.weight, shape);
  }
  const Tensor losses = neg(sum(a * log_softmax(x, dim), {dim}, false));
  return autograd::reduce_losses(op, losses, o.reduction);
}

}  // namespace

Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& o) {
  const OpCall call("cross_entropy", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"cross_entropy"})
    return cross_entropy(cast(x), cast(target), autograd::with_cast_weight(cast, o));
  if (is_floating(target.dtype())) return cross_entropy_of_probabilities(x, target, o);
  return cross_entropy_of_indices(
      x, target, o.weight,
      {.reduction = o.reduction, .ignore_index = o.ignore_index, .smoothing = o.label_smoothing});
}

Tensor nll_loss(const Tensor& x, const Tensor& target, const NllLossOptions& o) {
  const OpCall call("nll_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"nll_loss"})
    return nll_loss(cast(x), target, autograd::with_cast_weight(cast, o));
  return cross_entropy_of_indices(
      x, target, o.weight, {.reduction = o.reduction, .ignore_index = o.ignore_index, .log_probs = true});
}

Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const raw::CrossEntropyResult& forward, const raw::CrossEntropySpec& spec) {
  const OpCall call("cross_entropy_grad", {{"dy", dy}, {"x", x}, {"target", target}});
  const Tensor dx = raw::cross_entropy_grad(dy, x, target, weight, forward, spec);
  if (Recorder r{"cross_entropy_grad", dy, x}) {
    const int64_t dim = x.dim() == 1 ? 0 : 1;
    // Let the loss of a sample be -sum_c a_c log p_c; a depends on targets, weight and smoothing alone.
    // minus_a is the gradient of nll_loss with reduction kSum. All is computed in f32 for 16-bit x.
    raw::CrossEntropySpec nll_sum = spec;
    nll_sum.log_probs = true, nll_sum.reduction = Reduction::kSum;
    const Tensor wide = at_least_f32(detach(x));
    const Tensor minus_a =
        raw::cross_entropy_grad(scalar(1, {wide.dtype(), x.device()}), wide, target, weight, {}, nll_sum);
    const Tensor sum_a = neg(sum(minus_a, {dim}, true));
    const bool applies_softmax = !spec.log_probs;
    // dx = scale_of(dy) (sum_a softmax(x) - a), or -scale_of(dy) a, constant in x, for log-probabilities.
    const auto scale_of = [spec, dim, total = forward.total](const Tensor& v) {
      const Tensor s = spec.reduction == Reduction::kNone && v.dim() > 0 ? unsqueeze(v, dim) : v;
      return spec.reduction == Reduction::kMean ? s / total : s;
    };
    r.record(
        dx,
        wrt(dy,
            [x = r.save(x), minus_a, sum_a, dim, applies_softmax, spec,
             total = forward.total](const Tensor& ddx) {
              const Tensor unscaled_dx =
                  applies_softmax ? softmax(at_least_f32(x.get()), dim) * sum_a + minus_a : minus_a;
              const Tensor per_sample = sum(ddx * unscaled_dx, {dim}, false);
              if (spec.reduction == Reduction::kNone) return per_sample;
              return spec.reduction == Reduction::kMean ? sum(per_sample) / total : sum(per_sample);
            }),
        wrt(x, [x = r.save(x), dy = r.save(dy), sum_a, dim, applies_softmax, scale_of](const Tensor& ddx) {
          if (!applies_softmax) return Tensor();
          const Tensor p = softmax(at_least_f32(x.get()), dim);
          return scale_of(dy.get()) * sum_a * p * (ddx - sum(ddx * p, {dim}, true));
        }));
  }
  return dx;
}

}  // namespace gradus
