#include "gradus/autograd/ops/loss.h"

#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/softmax.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/autograd/record.h"

namespace gradus {
namespace {

Tensor reduce(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::kMean:
      return mean(losses);
    case Reduction::kSum:
      return sum(losses);
    case Reduction::kNone:
      return losses;
  }
  throw InternalError("unknown reduction ", int(reduction));
}

Tensor with_classes(const Tensor& x, const Tensor& target, const Tensor& weight,
                    const raw::CrossEntropySpec& spec) {
  const char* op = spec.log_probs ? "nll_loss" : "cross_entropy";
  if (autograd::is_tracked(weight))
    throw StateError(op, "has no gradient for its weight, which a recording tracks; detach(weight) makes it a constant");
  const raw::CrossEntropyResult forward = raw::cross_entropy(x, target, weight, spec);
  if (Recorder r{op, x})
    r.record(forward.loss, wrt(x, [x = r.save(x), target = r.save(target), weight, spec,
                                   stats = forward.stats, total = forward.total](const Tensor& dy) {
               return gradus::cross_entropy_grad(dy, x.get(), target.get(), weight, {{}, stats, total}, spec);
             }));
  return forward.loss;
}

Tensor with_probabilities(const Tensor& x, const Tensor& target, const CrossEntropyOptions& o) {
  if (target.shape() != x.shape() || x.dim() < 1)
    throw ShapeError("cross_entropy", "expected probabilities shaped like x ", describe(x), ", given target ",
                     describe(target));
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    throw ValueError("cross_entropy", "expected label_smoothing in [0, 1], given ", o.label_smoothing);
  const int64_t dim = x.dim() == 1 ? 0 : 1, classes = x.size(dim);
  Tensor p = target;
  if (o.label_smoothing > 0) p = p * (1 - o.label_smoothing) + o.label_smoothing / double(classes);
  if (o.weight.defined()) {
    Shape shape = Dims::filled(x.dim(), 1);
    shape[static_cast<int>(dim)] = classes;
    p = p * reshape(o.weight, shape);
  }
  return reduce(neg(sum(p * log_softmax(x, dim), {dim}, false)), o.reduction);
}

}  // namespace

Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& o) {
  if (is_floating(target.dtype())) return with_probabilities(x, target, o);
  return with_classes(
      x, target, o.weight,
      {.reduction = o.reduction, .ignore_index = o.ignore_index, .smoothing = o.label_smoothing});
}

Tensor nll_loss(const Tensor& x, const Tensor& target, const NllLossOptions& o) {
  return with_classes(x, target, o.weight,
                      {.reduction = o.reduction, .ignore_index = o.ignore_index, .log_probs = true});
}

Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const raw::CrossEntropyResult& forward, const raw::CrossEntropySpec& spec) {
  const Tensor dx = raw::cross_entropy_grad(dy, x, target, weight, forward, spec);
  if (Recorder r{"cross_entropy_grad", dy, x}) {
    const int64_t dim = x.dim() == 1 ? 0 : 1;
    // -a of every sample and class: the gradient for log-probabilities, unscaled. It depends on the targets
    // alone.
    raw::CrossEntropySpec plain = spec;
    plain.log_probs = true, plain.reduction = Reduction::kSum;
    const Tensor minus_a =
        raw::cross_entropy_grad(scalar(1, {x.dtype(), x.device()}), detach(x), target, weight, {}, plain);
    const Tensor a = neg(sum(minus_a, {dim}, true));
    const bool softmaxed = !spec.log_probs;
    // dx = scale (a_sum softmax(x) - a), scale = dy or dy / total
    const auto scaled = [spec, dim, total = forward.total](const Tensor& v) {
      const Tensor s = spec.reduction == Reduction::kNone && v.dim() > 0 ? unsqueeze(v, dim) : v;
      return spec.reduction == Reduction::kMean ? s / total : s;
    };
    r.record(dx,
             wrt(dy,
                 [x = r.save(x), minus_a, a, dim, softmaxed, spec, total = forward.total](const Tensor& ddx) {
                   const Tensor unit = softmaxed ? softmax(x.get(), dim) * a + minus_a : minus_a;
                   const Tensor per_sample = sum(ddx * unit, {dim}, false);
                   if (spec.reduction == Reduction::kNone) return per_sample;
                   return spec.reduction == Reduction::kMean ? sum(per_sample) / total : sum(per_sample);
                 }),
             wrt(x, [x = r.save(x), dy = r.save(dy), a, dim, softmaxed, scaled](const Tensor& ddx) {
               if (!softmaxed) return Tensor();
               const Tensor p = softmax(x.get(), dim);
               return scaled(dy.get()) * a * p * (ddx - sum(ddx * p, {dim}, true));
             }));
  }
  return dx;
}

Tensor mse_loss(const Tensor& x, const Tensor& target, const MseLossOptions& options) {
  if (x.shape() != target.shape())
    throw ShapeError("mse_loss", "expected x and target of one shape, given x ", describe(x), " and target ",
                     describe(target));
  if (!is_floating(x.dtype()) || !is_floating(target.dtype()))
    throw DTypeError("mse_loss", "expected floating-point tensors, given x ", describe(x), " and target ",
                     describe(target));
  return reduce(square(x - target), options.reduction);
}

}  // namespace gradus
