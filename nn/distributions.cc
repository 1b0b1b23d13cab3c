// Normal, Categorical and Bernoulli distributions and their KL divergences, with the formulas of
// torch.distributions, composed of differentiable ops. Parameters and values are checked outside of
// recordings, and the checks wait for the device. Clamping makes log(0) finite, so that 0 * log(0) is 0 and
// gradients have no NaN.
#include "gradus/nn/distributions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"

namespace gradus::distributions {
namespace {

// Returns whether all elements are true; true for a meta tensor, which has no elements. Waits for the device.
bool all_true(const Tensor& condition) {
  return condition.device().type == DeviceType::kMeta || all(condition).item<bool>();
}

void check_floating(const char* op, const char* name, const Tensor& x) {
  if (!is_floating(x.dtype()))
    throw DTypeError(op, "expected ", name, " of floating point: ", name, " ", describe(x));
}

// Machine epsilon of the dtype: the distance from 1 to the next larger number.
double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

// Returns the largest finite number of the dtype.
double largest(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::max();
    case DType::kF16:
      return 65504;
    case DType::kBF16:
      return 0x1.fep127;
    default:
      return std::numeric_limits<float>::max();
  }
}

// Returns probs clamped to [eps, 1 - eps], so that log(probs) and log(1 - probs) are finite.
Tensor clamp_probs(const Tensor& probs) {
  const double eps = epsilon(probs.dtype());
  return clamp(probs, eps, 1 - eps);
}

Shape concat_shapes(const Shape& a, const Shape& b) {
  Shape all = a;
  for (const int64_t size : b) all.push_back(size);
  return all;
}

// Replaces -infinity by the lowest finite number, whose product with 0 is 0 and not NaN.
Tensor clamp_to_finite(const Tensor& logits) { return clamp(logits, -largest(logits.dtype())); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the one of probs and logits that is defined.
const Tensor& defined_parameter(const char* op, const Tensor& probs, const Tensor& logits) {
  if (probs.defined() == logits.defined())
    throw ValueError(op, "expected either probs or logits, got ", probs.defined() ? "both" : "neither");
  const Tensor& x = probs.defined() ? probs : logits;
  check_floating(op, probs.defined() ? "probs" : "logits", x);
  return x;
}

}  // namespace

// ---- Normal ----

Normal::Normal(const Tensor& loc, const Tensor& scale) {
  constexpr const char* kOp = "Normal";
  check_floating(kOp, "loc", loc);
  check_floating(kOp, "scale", scale);
  const Shape shape = broadcast_shapes(loc.shape(), scale.shape(), kOp);
  loc_ = expand(loc, shape);
  scale_ = expand(scale, shape);
  const auto off = no_record();
  if (!all_true(eq(loc, loc))) throw ValueError(kOp, "loc has a NaN: loc ", describe(loc));
  if (!all_true(gt(scale, 0))) throw ValueError(kOp, "expected scale > 0: scale ", describe(scale));
}

Normal::Normal(const Tensor& loc, double scale)
    : Normal(loc, scalar(scale, {.dtype = loc.dtype(), .device = loc.device()})) {}
Normal::Normal(double loc, const Tensor& scale)
    : Normal(scalar(loc, {.dtype = scale.dtype(), .device = scale.device()}), scale) {}
Normal::Normal(double loc, double scale) : Normal(scalar(loc), scalar(scale)) {}

Tensor Normal::variance() const { return square(scale_); }

Tensor Normal::sample(const Shape& shape) const {
  const auto off = no_record();
  return rsample(shape);
}

Tensor Normal::rsample(const Shape& shape) const {
  return loc_ + scale_ * randn(concat_shapes(shape, batch_shape()),
                               {.dtype = loc_.dtype(), .device = loc_.device()});
}

Tensor Normal::log_prob(const Tensor& x) const {
  {
    const auto off = no_record();
    if (!all_true(eq(x, x))) throw ValueError("Normal.log_prob", "x has a NaN: x ", describe(x));
  }
  return square((x - loc_) / scale_) * -0.5 - log(scale_) - 0.5 * std::log(2 * std::numbers::pi);
}

Tensor Normal::entropy() const { return log(scale_) + (0.5 + 0.5 * std::log(2 * std::numbers::pi)); }

// ---- Categorical ----

Categorical::Categorical(const CategoricalOptions& options) {
  constexpr const char* kOp = "Categorical";
  const Tensor& x = defined_parameter(kOp, options.probs, options.logits);
  if (x.dim() == 0) throw ShapeError(kOp, "expected one number or more for each distribution: ", describe(x));
  batch_shape_ = x.shape();
  batch_shape_.erase(batch_shape_.size() - 1);
  if (options.probs.defined()) {
    probs_ = x / sum(x, {-1}, true);
    logits_ = log(clamp_probs(probs_));
  } else {
    logits_ = log_softmax(x, -1);
    probs_ = softmax(x, -1);
  }
  const auto off = no_record();
  if (options.probs.defined() && !all_true(ge(probs_, 0)))
    throw ValueError(kOp, "expected probs of at least 0, with a sum above 0: probs ", describe(x));
  if (!all_true(eq(logits_, logits_)))
    throw ValueError(kOp, "expected logits with no NaN and a finite maximum: logits ", describe(x));
}

Tensor Categorical::sample(const Shape& shape) const {
  const auto off = no_record();
  const Shape result = concat_shapes(shape, batch_shape_);
  const int64_t rows = batch_shape_.product(), draws = shape.product();
  if (rows == 0 || draws == 0) return zeros(result, {.dtype = DType::kI64, .device = probs_.device()});
  const Tensor weights = reshape(probs_, {rows, probs_.size(-1)});
  return reshape(transpose(multinomial(weights, draws, {.replacement = true}), 0, 1), result);
}

Tensor Categorical::log_prob(const Tensor& x) const {
  constexpr const char* kOp = "Categorical.log_prob";
  if (!is_integral(x.dtype())) throw DTypeError(kOp, "expected integers: x ", describe(x));
  const int64_t classes = logits_.size(-1);
  {
    const auto off = no_record();
    if (!all_true(logical_and(ge(x, 0), lt(x, classes))))
      throw ValueError(kOp, "expected numbers of 0 to ", classes - 1, ": x ", describe(x));
  }
  const Shape shape = broadcast_shapes(x.shape(), batch_shape_, kOp);
  const Tensor index = unsqueeze(expand(to(x, DType::kI64), shape), -1);
  return squeeze(gather(expand(logits_, concat_shapes(shape, {classes})), -1, index), -1);
}

Tensor Categorical::entropy() const { return -sum(probs_ * clamp_to_finite(logits_), {-1}); }

// ---- Bernoulli ----

Bernoulli::Bernoulli(const BernoulliOptions& options) {
  constexpr const char* kOp = "Bernoulli";
  const Tensor& x = defined_parameter(kOp, options.probs, options.logits);
  if (options.probs.defined()) {
    const auto off = no_record();
    if (!all_true(logical_and(ge(x, 0), le(x, 1))))
      throw ValueError(kOp, "expected probs in [0, 1]: probs ", describe(x));
  }
  if (options.probs.defined()) {
    probs_ = x;
    const Tensor p = clamp_probs(x);
    logits_ = log(p) - log1p(-p);
  } else {
    logits_ = x;
    probs_ = sigmoid(x);
  }
  const auto off = no_record();
  if (!all_true(eq(logits_, logits_))) throw ValueError(kOp, "logits have a NaN: logits ", describe(x));
}

Tensor Bernoulli::variance() const { return probs_ * (1 - probs_); }

Tensor Bernoulli::sample(const Shape& shape) const {
  const auto off = no_record();
  return bernoulli(expand(probs_, concat_shapes(shape, batch_shape())));
}

Tensor Bernoulli::log_prob(const Tensor& x) const {
  constexpr const char* kOp = "Bernoulli.log_prob";
  {
    const auto off = no_record();
    if (!all_true(logical_or(eq(x, 0), eq(x, 1))))
      throw ValueError(kOp, "expected zeros and ones: x ", describe(x));
  }
  const Shape shape = broadcast_shapes(x.shape(), batch_shape(), kOp);
  return -binary_cross_entropy_with_logits(expand(logits_, shape), to(expand(x, shape), logits_.dtype()),
                                           {.reduction = Reduction::kNone});
}

Tensor Bernoulli::entropy() const {
  return binary_cross_entropy_with_logits(logits_, probs_, {.reduction = Reduction::kNone});
}

// ---- divergences ----

Tensor kl_divergence(const Normal& p, const Normal& q) {
  const Tensor ratio = square(p.scale() / q.scale());
  return 0.5 * (ratio + square((p.loc() - q.loc()) / q.scale()) - 1 - log(ratio));
}

Tensor kl_divergence(const Categorical& p, const Categorical& q) {
  constexpr const char* kOp = "kl_divergence";
  if (p.probs().size(-1) != q.probs().size(-1))
    throw ShapeError(kOp, "expected distributions over as many numbers: p ", describe(p.probs()), ", q ",
                     describe(q.probs()));
  // Outcomes that p can have and q cannot make the divergence infinite.
  const Tensor impossible = logical_and(eq(q.probs(), 0), gt(p.probs(), 0));
  const Tensor terms = p.probs() * (clamp_to_finite(p.logits()) - clamp_to_finite(q.logits()));
  return sum(where(impossible, kInfinity, where(eq(p.probs(), 0), 0.0, terms)), {-1});
}

Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q) {
  // log p = -softplus(-logits), log(1 - p) = -softplus(logits). The terms of the outcomes 1 and 0 are a (log
  // a - log b) and (1 - a) (log(1 - a) - log(1 - b)).
  const Tensor &a = p.probs(), &b = q.probs();
  const Tensor ones = a * (softplus(-q.logits()) - softplus(-p.logits()));
  const Tensor zeros = (1 - a) * (softplus(q.logits()) - softplus(p.logits()));
  // `none`: the outcome is impossible under p. `never`: it is impossible under q.
  const auto term = [](const Tensor& none, const Tensor& never, const Tensor& x) {
    return where(none, 0.0, where(never, kInfinity, x));
  };
  return term(eq(a, 0), eq(b, 0), ones) + term(eq(a, 1), eq(b, 1), zeros);
}

}  // namespace gradus::distributions
