// Functors of element-wise losses of an element x with target t, for the CPU and GPU kernels of point_loss.
// The functor named ...Backward computes dy times the derivative of the loss with respect to x; targets have
// no gradient here. T is the compute type: double for f64, else float. kHalfVectors: see functor.h.
#pragma once

#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/functor.h"
#include "gradus/tensor/ops/losses/pointwise_losses.h"

namespace gradus::functors {

struct SquaredError : OnFloats {
  template <class T> GRADUS_HD T operator()(T x, T t) const { return (x - t) * (x - t); }
};
struct SquaredErrorBackward : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kF16};
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const { return T(2) * dy * (x - t); }
};
struct AbsoluteError : OnFloats {
  template <class T> GRADUS_HD T operator()(T x, T t) const { return m::abs(x - t); }
};
struct AbsoluteErrorBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const { return dy * (T(x > t) - T(x < t)); }
};
// d^2 / (2 beta) for |d| < beta, else |d| - beta / 2.
struct SmoothL1 : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kF64};
  double beta;
  template <class T> GRADUS_HD T operator()(T x, T t) const {
    const T d = m::abs(x - t), b = T(beta);
    return d < b ? T(0.5) * d * d / b : d - T(0.5) * b;
  }
};
struct SmoothL1Backward : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kF64, DType::kBF16};
  double beta;
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const {
    const T d = (x - t) / T(beta), raised = d < T(-1) ? T(-1) : d;  // clamps d to [-1, 1]; NaN stays NaN
    return dy * (raised > T(1) ? T(1) : raised);
  }
};
// d^2 / 2 for |d| <= delta, else delta (|d| - delta / 2).
struct Huber : OnFloats {
  double delta;
  template <class T> GRADUS_HD T operator()(T x, T t) const {
    const T d = m::abs(x - t), b = T(delta);
    return d <= b ? T(0.5) * d * d : b * (d - T(0.5) * b);
  }
};
struct HuberBackward : OnFloats {
  double delta;
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const {
    const T b = T(delta), d = x - t, raised = d < -b ? -b : d;
    return dy * (raised > b ? b : raised);
  }
};
// -t log x - (1 - t) log(1 - x), where each logarithm is at least -100.
struct BinaryCrossEntropy : OnFloats {
  template <class T> GRADUS_HD T operator()(T x, T t) const {
    const T yes = m::log(x), no = m::log1p(-x);
    return (t - T(1)) * (no < T(-100) ? T(-100) : no) - t * (yes < T(-100) ? T(-100) : yes);
  }
};
// dy (x - t) / max(x (1 - x), 1e-12).
struct BinaryCrossEntropyBackward : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kBF16};
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const {
    const T variance = (T(1) - x) * x, least = T(1e-12);
    return dy * (x - t) / (variance < least ? least : variance);
  }
};
// BinaryCrossEntropy of sigmoid(x), computed as max(x, 0) - x t + log(1 + e^-|x|), without
// overflow or cancellation.
struct BinaryCrossEntropyWithLogits : OnFloats {
  template <class T> GRADUS_HD T operator()(T x, T t) const {
    return (x < T(0) ? T(0) : x) - x * t + m::log1p(m::exp(-m::abs(x)));
  }
};
struct BinaryCrossEntropyWithLogitsBackward : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kBF16};
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const { return dy * (m::sigmoid(x) - t); }
};
// log(1 + e^(-t x)).
struct SoftMargin : OnFloats {
  template <class T> GRADUS_HD T operator()(T x, T t) const { return -LogSigmoid{}(x * t); }
};
struct SoftMarginBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const { return -dy * t * m::sigmoid(-x * t); }
};
// t (log t - x), 0 where t is not positive.
struct KlDiv : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kF16};
  template <class T> GRADUS_HD T operator()(T x, T t) const {
    const T v = t * (m::log(t) - x);
    return t > T(0) ? v : T(0);
  }
};
struct KlDivBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T, T t) const { return t > T(0) ? -t * dy : T(0); }
};
// e^t (t - x).
struct KlDivOfLogs : OnFloats {
  template <class T> GRADUS_HD T operator()(T x, T t) const { return m::exp(t) * (t - x); }
};
struct KlDivOfLogsBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T, T t) const { return -m::exp(t) * dy; }
};
// x - t log(x + eps).
struct PoissonNll : OnFloats {
  double eps;
  template <class T> GRADUS_HD T operator()(T x, T t) const { return x - t * m::log(x + T(eps)); }
};
struct PoissonNllBackward : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kBF16};
  double eps;
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const { return dy * (T(1) - t / (x + T(eps))); }
};
// e^x - t x.
struct PoissonNllOfLogs : OnFloats {
  static constexpr DType kHalfVectors[] = {DType::kF64};
  template <class T> GRADUS_HD T operator()(T x, T t) const { return m::exp(x) - t * x; }
};
struct PoissonNllOfLogsBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const { return dy * (m::exp(x) - t); }
};

// A loss functor with the same target for all elements.
template <class F> struct WithScalarTarget : F {
  double target;
  template <class T> GRADUS_HD T operator()(T x) const { return F::operator()(x, T(target)); }
};
// A gradient functor with dy multiplied by a factor.
template <class F> struct ScaledGradient : F {
  double factor;
  template <class T> GRADUS_HD T operator()(T dy, T x, T t) const {
    return F::operator()(T(factor) * dy, x, t);
  }
};
// Both of the above: a factor, and the same target for all elements.
template <class F> struct ScaledWithScalarTarget : ScaledGradient<F> {
  double target;
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    return ScaledGradient<F>::operator()(dy, x, T(target));
  }
};

}  // namespace gradus::functors

namespace gradus::raw {

// Calls f(functor of the loss, functor of its gradient) for s.kind, with s.parameter as beta, delta or eps.
template <class F> void with_loss(const PointLossSpec& s, F&& f) {
  using namespace functors;  // NOLINT
  switch (s.kind) {
    case PointLoss::kSquaredError:
      return f(SquaredError{}, SquaredErrorBackward{});
    case PointLoss::kAbsoluteError:
      return f(AbsoluteError{}, AbsoluteErrorBackward{});
    case PointLoss::kSmoothL1:
      return f(SmoothL1{{}, s.parameter}, SmoothL1Backward{{}, s.parameter});
    case PointLoss::kHuber:
      return f(Huber{{}, s.parameter}, HuberBackward{{}, s.parameter});
    case PointLoss::kBinaryCrossEntropy:
      return f(BinaryCrossEntropy{}, BinaryCrossEntropyBackward{});
    case PointLoss::kBinaryCrossEntropyWithLogits:
      return f(BinaryCrossEntropyWithLogits{}, BinaryCrossEntropyWithLogitsBackward{});
    case PointLoss::kSoftMargin:
      return f(SoftMargin{}, SoftMarginBackward{});
    case PointLoss::kKlDiv:
      return f(KlDiv{}, KlDivBackward{});
    case PointLoss::kKlDivOfLogs:
      return f(KlDivOfLogs{}, KlDivOfLogsBackward{});
    case PointLoss::kPoissonNll:
      return f(PoissonNll{{}, s.parameter}, PoissonNllBackward{{}, s.parameter});
    case PointLoss::kPoissonNllOfLogs:
      return f(PoissonNllOfLogs{}, PoissonNllOfLogsBackward{});
  }
}

}  // namespace gradus::raw
