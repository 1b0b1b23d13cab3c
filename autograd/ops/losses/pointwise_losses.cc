// Element-wise losses of x and a target of x's shape, as in torch.nn.functional. One kernel computes the
// losses, or their sum times a factor; rules (backward functions) use a fused backward kernel, or, if the
// backward is recorded for second derivatives, derivative_x and derivative_target, composed of differentiable
// ops. The gradient of a target always uses derivative_target.
#include "gradus/autograd/ops/losses/pointwise_losses.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/losses/loss_reduction.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/losses/pointwise_losses.h"

namespace gradus {
namespace {

using autograd::at_least_f32;
using autograd::has_16_bits;
using autograd::reduce_losses;
using raw::PointLoss;
using raw::PointLossSpec;

// Return the derivative of each loss with respect to x, or to the target t, computed by differentiable ops.
Tensor derivative_x(const Tensor& x, const Tensor& t, const PointLossSpec& s) {
  switch (s.kind) {
    case PointLoss::kSquaredError:
      return 2 * (x - t);
    case PointLoss::kAbsoluteError:
      return sign(x - t);
    case PointLoss::kSmoothL1:
      return clamp((x - t) / s.parameter, -1, 1);
    case PointLoss::kHuber:
      return clamp(x - t, -s.parameter, s.parameter);
    case PointLoss::kBinaryCrossEntropy:
      return (x - t) / clamp((1 - x) * x, 1e-12);
    case PointLoss::kBinaryCrossEntropyWithLogits:
      return sigmoid(x) - t;
    case PointLoss::kSoftMargin:
      return -(t * sigmoid(-(x * t)));
    case PointLoss::kKlDiv:
      return -relu(t);
    case PointLoss::kKlDivOfLogs:
      return -exp(t);
    case PointLoss::kPoissonNll:
      return 1 - t / (x + s.parameter);
    case PointLoss::kPoissonNllOfLogs:
      return exp(x) - t;
  }
  throw InternalError("unknown point loss ", int(s.kind));
}

Tensor derivative_target(const Tensor& x, const Tensor& t, const PointLossSpec& s) {
  switch (s.kind) {
    case PointLoss::kSquaredError:
    case PointLoss::kAbsoluteError:
    case PointLoss::kSmoothL1:
    case PointLoss::kHuber:
      return -derivative_x(x, t, s);
    case PointLoss::kBinaryCrossEntropy:
      return clamp(log1p(-x), -100) - clamp(log(x), -100);
    case PointLoss::kBinaryCrossEntropyWithLogits:
    case PointLoss::kPoissonNllOfLogs:
      return -x;
    case PointLoss::kSoftMargin:
      return -(x * sigmoid(-(x * t)));
    case PointLoss::kKlDiv: {
      const Tensor counts = gt(t, 0);
      return where(counts, log(where(counts, t, 1)) + 1 - x, 0);
    }
    case PointLoss::kKlDivOfLogs:
      return exp(t) * (t - x + 1);
    case PointLoss::kPoissonNll:
      return -log(x + s.parameter);
  }
  throw InternalError("unknown point loss ", int(s.kind));
}

// Records y = factor * losses, or factor * sum of the losses. An undefined target means spec.target. `slope`
// is undefined, or the gradient of x for dy = 1, computed by the forward kernel; the first backward whose dy
// is known to be 1 (is_known_ones) returns `slope`.
void record(const char* op, const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
            double factor, Tensor slope) {
  Recorder r{op, x, target};
  if (!r) return;
  const auto times_factor = [factor](const Tensor& dy) { return factor == 1 ? dy : dy * factor; };
  r.record(y,
           wrt(x,
               [x = r.save(x), target = r.save(target), spec, factor, times_factor,
                slope = std::move(slope)](const Tensor& dy) mutable {
                 const Tensor v = x.get(), t = target.get();
                 const bool second_order = autograd::any_tracked(dy, v, t);
                 if (!second_order && slope.defined() && autograd::is_known_ones(dy))
                   return std::exchange(slope, {});
                 if (!second_order) return raw::point_loss_backward(dy, v, t, spec, factor);
                 const Tensor w = t.defined() ? at_least_f32(t) : full_like(at_least_f32(v), spec.target);
                 return times_factor(dy) * derivative_x(at_least_f32(v), w, spec);
               }),
           wrt(target, [x = r.save(x), target = r.save(target), spec, times_factor](const Tensor& dy) {
             return times_factor(dy) *
                    derivative_target(at_least_f32(x.get()), at_least_f32(target.get()), spec);
           }));
}

Tensor losses_of(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec) {
  Tensor y = raw::point_loss(op, x, target, spec);
  record(op, y, x, target, spec, 1, {});
  return y;
}

// Equals reduce_losses(op, losses_of(...), reduction). kMean and kSum run as one op without memory for the
// losses.
Tensor reduced_losses_of(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
                         Reduction reduction) {
  if (reduction != Reduction::kMean && reduction != Reduction::kSum)
    return reduce_losses(op, losses_of(op, x, target, spec), reduction);
  const double factor = reduction == Reduction::kSum ? 1 : 1.0 / static_cast<double>(x.numel());
  raw::PointLossSum sum =
      raw::point_loss_sum(op, x, target, spec, factor, /*compute_gradient=*/autograd::is_tracked(x));
  record(op, sum.loss, x, target, spec, factor, std::move(sum.gradient));
  return sum.loss;
}

// Throws ShapeError unless t, the option `name`, is undefined or broadcasts to x's shape.
void check_broadcasts(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  if (!t.defined()) return;
  bool fits = t.dim() <= x.dim();
  for (int d = 1; fits && d <= t.dim(); ++d) fits = t.size(-d) == 1 || t.size(-d) == x.size(-d);
  if (!fits)
    throw ShapeError(op, name, " must broadcast to x: ", name, ' ', describe(t), ", x ", describe(x));
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, const MseLossOptions& o) {
  const OpCall call("mse_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"mse_loss"}) return mse_loss(cast(x), cast(target), o);
  return reduced_losses_of("mse_loss", x, target, {PointLoss::kSquaredError}, o.reduction);
}

Tensor mse_loss_to(const Tensor& x, Number target, const MseLossOptions& o) {
  const OpCall call("mse_loss_to", {{"x", x}});
  if (autograd::Casting cast{"mse_loss"}) return mse_loss_to(cast(x), target, o);
  return reduced_losses_of("mse_loss_to", x, {}, {PointLoss::kSquaredError, 0, target.to_double()},
                           o.reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, const L1LossOptions& o) {
  const OpCall call("l1_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"l1_loss"}) return l1_loss(cast(x), cast(target), o);
  return reduced_losses_of("l1_loss", x, target, {PointLoss::kAbsoluteError}, o.reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& o) {
  const OpCall call("smooth_l1_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"smooth_l1_loss"}) return smooth_l1_loss(cast(x), cast(target), o);
  const char* op = "smooth_l1_loss";
  if (!(o.beta >= 0)) throw ValueError(op, "beta must be at least 0, got ", o.beta);
  const PointLossSpec spec =
      o.beta == 0 ? PointLossSpec{PointLoss::kAbsoluteError} : PointLossSpec{PointLoss::kSmoothL1, o.beta};
  return reduced_losses_of(op, x, target, spec, o.reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberLossOptions& o) {
  const OpCall call("huber_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"huber_loss"}) return huber_loss(cast(x), cast(target), o);
  const char* op = "huber_loss";
  if (!(o.delta > 0)) throw ValueError(op, "delta must be positive, got ", o.delta);
  return reduced_losses_of(op, x, target, {PointLoss::kHuber, o.delta}, o.reduction);
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const BinaryCrossEntropyOptions& o) {
  const OpCall call("binary_cross_entropy", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"binary_cross_entropy"})
    return binary_cross_entropy(cast(x), cast(target), autograd::with_cast_weight(cast, o));
  const char* op = "binary_cross_entropy";
  check_broadcasts(op, "weight", o.weight, x);
  const PointLossSpec spec{PointLoss::kBinaryCrossEntropy};
  Tensor y = o.weight.defined() ? reduce_losses(op, losses_of(op, x, target, spec) * o.weight, o.reduction)
                                : reduced_losses_of(op, x, target, spec, o.reduction);
  raw::check_probabilities(x, /*is_target=*/false);
  raw::check_probabilities(target, /*is_target=*/true);
  return y;
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BinaryCrossEntropyWithLogitsOptions& o) {
  const OpCall call("binary_cross_entropy_with_logits", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"binary_cross_entropy_with_logits"}) {
    BinaryCrossEntropyWithLogitsOptions options = o;
    options.weight = cast(o.weight);
    options.pos_weight = cast(o.pos_weight);
    return binary_cross_entropy_with_logits(cast(x), cast(target), options);
  }
  const char* op = "binary_cross_entropy_with_logits";
  check_broadcasts(op, "weight", o.weight, x);
  check_broadcasts(op, "pos_weight", o.pos_weight, x);
  // Several 16-bit ops would accumulate rounding errors, and their small constants may be 0 in f16.
  if (has_16_bits(x) && o.pos_weight.defined())
    return to(
        binary_cross_entropy_with_logits(at_least_f32(x), at_least_f32(target),
                                         {o.reduction, at_least_f32(o.weight), at_least_f32(o.pos_weight)}),
        x.dtype());
  const PointLossSpec spec{PointLoss::kBinaryCrossEntropyWithLogits};
  if (!o.pos_weight.defined() && !o.weight.defined())
    return reduced_losses_of(op, x, target, spec, o.reduction);
  Tensor losses = losses_of(op, x, target, spec);
  // Multiplies the term -target log sigmoid(x) of the losses by pos_weight.
  if (o.pos_weight.defined()) losses = losses - (o.pos_weight - 1) * target * logsigmoid(x);
  return reduce_losses(op, o.weight.defined() ? losses * o.weight : losses, o.reduction);
}

Tensor binary_cross_entropy_with_logits_to(const Tensor& x, Number target,
                                           const BinaryCrossEntropyWithLogitsOptions& o) {
  const OpCall call("binary_cross_entropy_with_logits_to", {{"x", x}});
  const char* op = "binary_cross_entropy_with_logits_to";
  if (o.weight.defined() || o.pos_weight.defined())
    return binary_cross_entropy_with_logits(x, full_like(x, target), o);
  if (autograd::Casting cast{"binary_cross_entropy_with_logits"})
    return binary_cross_entropy_with_logits_to(cast(x), target, o);
  return reduced_losses_of(op, x, {}, {PointLoss::kBinaryCrossEntropyWithLogits, 0, target.to_double()},
                           o.reduction);
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& target, const SoftMarginLossOptions& o) {
  const OpCall call("soft_margin_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"soft_margin_loss"}) return soft_margin_loss(cast(x), cast(target), o);
  const char* op = "soft_margin_loss";
  return reduced_losses_of(op, x, target, {PointLoss::kSoftMargin}, o.reduction);
}

Tensor kl_div(const Tensor& x, const Tensor& target, const KlDivOptions& o) {
  const OpCall call("kl_div", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"kl_div"}) return kl_div(cast(x), cast(target), o);
  const char* op = "kl_div";
  const PointLossSpec spec{o.log_target ? PointLoss::kKlDivOfLogs : PointLoss::kKlDiv};
  if (o.reduction != Reduction::kBatchMean) return reduced_losses_of(op, x, target, spec, o.reduction);
  const Tensor losses = losses_of(op, x, target, spec);
  if (x.dim() == 0) throw ShapeError(op, "kBatchMean needs a batch, got x ", describe(x));
  // Sums in f32: the sum could overflow in f16 although the batch mean does not.
  return to(sum(at_least_f32(losses)) / double(x.size(0)), losses.dtype());
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, const PoissonNllLossOptions& o) {
  const OpCall call("poisson_nll_loss", {{"x", x}, {"target", target}});
  if (autograd::Casting cast{"poisson_nll_loss"}) return poisson_nll_loss(cast(x), cast(target), o);
  const char* op = "poisson_nll_loss";
  if (!(o.eps > 0)) throw ValueError(op, "eps must be positive, got ", o.eps);
  if (has_16_bits(x) && o.full)
    return to(poisson_nll_loss(at_least_f32(x), at_least_f32(target), o), x.dtype());
  const PointLossSpec spec = o.log_input ? PointLossSpec{PointLoss::kPoissonNllOfLogs}
                                         : PointLossSpec{PointLoss::kPoissonNll, o.eps};
  if (!o.full) return reduced_losses_of(op, x, target, spec, o.reduction);
  // Stirling's approximation of log(target!), for targets above 1.
  const Tensor counts = gt(target, 1), t = where(counts, target, 1);
  const Tensor stirling = t * log(t) - t + 0.5 * log(2 * std::numbers::pi * t);
  return reduce_losses(op, losses_of(op, x, target, spec) + where(counts, stirling, 0), o.reduction);
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var,
                         const GaussianNllLossOptions& o) {
  const OpCall call("gaussian_nll_loss", {{"x", x}, {"target", target}, {"var", var}});
  if (autograd::Casting cast{"gaussian_nll_loss"})
    return gaussian_nll_loss(cast(x), cast(target), cast(var), o);
  const char* op = "gaussian_nll_loss";
  if (!(o.eps > 0)) throw ValueError(op, "eps must be positive, got ", o.eps);
  if (has_16_bits(x))
    return to(gaussian_nll_loss(at_least_f32(x), at_least_f32(target), at_least_f32(var), o), x.dtype());
  Tensor v = var;
  if (v.shape() != x.shape()) {
    Shape one = x.shape(), without = x.shape();
    if (x.dim() > 0) one[x.dim() - 1] = 1, without.erase(x.dim() - 1);
    if (x.dim() > 0 && v.shape() == without)
      v = unsqueeze(v, -1);
    else if (x.dim() == 0 || v.shape() != one)
      throw ShapeError(op, "var must be shaped as x, or with a last dim of size 1 or without it: var ",
                       describe(var), ", x ", describe(x));
  }
  const Tensor errors = losses_of(op, x, target, {PointLoss::kSquaredError});
  // v = max(var, eps), with the gradient of var unchanged by the clamp.
  const Tensor constant = detach(v);
  v = v + (clamp(constant, o.eps) - constant);
  Tensor losses = 0.5 * (log(v) + errors / v);
  if (o.full) losses = losses + 0.5 * std::log(2 * std::numbers::pi);
  return reduce_losses(op, losses, o.reduction);
}

}  // namespace gradus
