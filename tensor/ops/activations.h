// Functors of activation functions and of their fused gradients, with PyTorch's formulas, for CPU and GPU. A
// functor computes one element; raw::unary, raw::binary and raw::backward (elementwise.h) apply it to
// tensors. The base class gives the accepted dtypes, T is the compute type (float for 16-bit floats), and
// members are the op's parameters. m is scalar_math.h; functor.h has the macros, base classes and
// kHalfVectors. A functor ...Backward computes dx from dy and the input x or the output y, as its parameter
// is named. autograd/ops/activations.cc composes other gradients. NaN gives NaN, but not always for x and y
// of ...Backward.
#pragma once

#include "gradus/tensor/ops/elementwise.h"

namespace gradus::functors {

GRADUS_UNARY_FUNCTOR(Relu, OnNumbers, "relu", T, x < T(0) ? T(0) : x);
struct ReluBackward : OnFloats {
  static constexpr const char* name = "relu_backward";
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return y <= T(0) ? T(0) : dy; }
};
struct LeakyRelu : OnFloats {
  static constexpr const char* name = "leaky_relu";
  double slope;
  template <class T> GRADUS_HD T operator()(T x) const { return x < T(0) ? T(slope) * x : x; }
};
struct LeakyReluBackward : OnFloats {
  static constexpr const char* name = "leaky_relu_backward";
  double slope;
  template <class T> GRADUS_HD T operator()(T dy, T x) const { return x > T(0) ? dy : T(slope) * dy; }
};
// `slope` is a second operand: the learned weight, broadcast to x.
struct Prelu : OnFloats {
  static constexpr const char* name = "prelu";
  template <class T> GRADUS_HD T operator()(T x, T slope) const { return x > T(0) ? x : slope * x; }
};
struct Threshold : OnNumbers {
  static constexpr const char* name = "threshold";
  double threshold, value;
  template <class T> GRADUS_HD T operator()(T x) const { return x <= T(threshold) ? T(value) : x; }
};
struct Elu : OnFloats {
  static constexpr const char* name = "elu";
  double alpha;
  template <class T> GRADUS_HD T operator()(T x) const { return x <= T(0) ? T(alpha) * m::expm1(x) : x; }
};
struct EluBackward : OnFloats {
  static constexpr const char* name = "elu_backward";
  double alpha;
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    return x <= T(0) ? dy * T(alpha) * m::exp(x) : dy;
  }
};
struct Celu : OnFloats {
  static constexpr const char* name = "celu";
  double alpha;
  template <class T> GRADUS_HD T operator()(T x) const {
    return x > T(0) ? x : T(alpha) * m::expm1(x / T(alpha));
  }
};
// scale * ELU(x) with alpha 1.67326... and scale 1.05070... of Klambauer et al., 2017.
struct Selu : OnFloats {
  static constexpr const char* name = "selu";
  template <class T> GRADUS_HD T operator()(T x) const {
    return x > T(0) ? T(1.0507009873554805) * x : T(1.0507009873554805 * 1.6732632423543772) * m::expm1(x);
  }
};
GRADUS_UNARY_FUNCTOR(Sigmoid, OnFloats, "sigmoid", T, m::sigmoid(x));
struct SigmoidBackward : OnFloats {
  static constexpr const char* name = "sigmoid_backward";
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return dy * (y * (T(1) - y)); }
};
// log(sigmoid(x)) = min(x, 0) - log(1 + e^-|x|), whose exponential does not overflow.
struct LogSigmoid : OnFloats {
  static constexpr const char* name = "logsigmoid";
  template <class T> GRADUS_HD T operator()(T x) const {
    return (x < T(0) ? x : T(0)) - m::log1p(m::exp(-m::abs(x)));
  }
};
GRADUS_UNARY_FUNCTOR(Tanh, OnFloats, "tanh", T, m::tanh(x));
struct TanhBackward : OnFloats {
  static constexpr const char* name = "tanh_backward";
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return dy * (T(1) - y * y); }
};
// log(1 + e^(beta x)) / beta; x if beta x > threshold.
struct Softplus : OnFloats {
  static constexpr const char* name = "softplus";
  double beta, threshold;
  template <class T> GRADUS_HD T operator()(T x) const {
    const T z = x * T(beta);
    return z > T(threshold) ? x : m::log1p(m::exp(z)) / T(beta);
  }
};
struct Silu : OnFloats {
  static constexpr const char* name = "silu";
  template <class T> GRADUS_HD T operator()(T x) const { return x * m::sigmoid(x); }
};
struct SiluBackward : OnFloats {
  static constexpr const char* name = "silu_backward";
  static constexpr DType kHalfVectors[] = {DType::kBF16};
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const T s = m::sigmoid(x);
    return dy * s * (T(1) + x * (T(1) - s));
  }
};
// x tanh(log(1 + e^x)) = x (n^2 + 2n) / (n^2 + 2n + 2) with n = e^x. For x > 20 the result is x.
struct Mish : OnFloats {
  static constexpr const char* name = "mish";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T n = m::exp(x > T(20) ? T(20) : x), t = n * (n + T(2));
    return x > T(20) ? x : x * (t / (t + T(2)));
  }
};
// x Phi(x) with the standard normal distribution function Phi(x) = (1 + erf(x / sqrt(2))) / 2.
struct Gelu : OnFloats {
  static constexpr const char* name = "gelu";
  static constexpr DType kHalfVectors[] = {DType::kF64};
  template <class T> GRADUS_HD T operator()(T x) const {
    return T(0.5) * x * (T(1) + m::erf(x * T(0.70710678118654752)));
  }
};
struct GeluBackward : OnFloats {
  static constexpr const char* name = "gelu_backward";
  static constexpr DType kHalfVectors[] = {DType::kF64};
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const T cdf = T(0.5) * (T(1) + m::erf(x * T(0.70710678118654752)));
    const T pdf = T(0.39894228040143268) * m::exp(T(-0.5) * x * x);
    return dy * (cdf + x * pdf);
  }
};
// The tanh approximation of gelu: x / 2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh : OnFloats {
  static constexpr const char* name = "gelu_tanh";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + m::tanh(u));
  }
};
struct GeluTanhBackward : OnFloats {
  static constexpr const char* name = "gelu_tanh_backward";
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
    const T t = m::tanh(u);
    const T du = T(0.79788456080286536) * (T(1) + T(3 * 0.044715) * x * x);
    return dy * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * du);
  }
};
struct HardSigmoid : OnFloats {
  static constexpr const char* name = "hardsigmoid";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T y = (x + T(3)) / T(6);
    return y < T(0) ? T(0) : y > T(1) ? T(1) : y;
  }
};
struct HardSwish : OnFloats {
  static constexpr const char* name = "hardswish";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T y = x + T(3), c = y < T(0) ? T(0) : y > T(6) ? T(6) : y;
    return x * c / T(6);
  }
};
struct HardShrink : OnFloats {
  static constexpr const char* name = "hardshrink";
  double lambda;
  template <class T> GRADUS_HD T operator()(T x) const {
    return x >= T(-lambda) && x <= T(lambda) ? T(0) : x;
  }
};
struct SoftShrink : OnFloats {
  static constexpr const char* name = "softshrink";
  double lambda;
  template <class T> GRADUS_HD T operator()(T x) const {
    const T l = T(lambda);
    return x > l ? x - l : x < -l ? x + l : x * T(0);  // NaN stays
  }
};

// The slots of these functors, which each device fills.
using ActivationSlots =
    raw::SlotList<raw::Unary<Relu>, raw::Binary<ReluBackward>, raw::Unary<LeakyRelu>,
                  raw::Binary<LeakyReluBackward>, raw::Binary<Prelu>, raw::Unary<Threshold>, raw::Unary<Elu>,
                  raw::Binary<EluBackward>, raw::Unary<Celu>, raw::Unary<Selu>, raw::Unary<Sigmoid>,
                  raw::Binary<SigmoidBackward>, raw::Unary<LogSigmoid>, raw::Unary<Tanh>,
                  raw::Binary<TanhBackward>, raw::Unary<Softplus>, raw::Unary<Silu>,
                  raw::Binary<SiluBackward>, raw::Unary<Mish>, raw::Unary<Gelu>, raw::Binary<GeluBackward>,
                  raw::Unary<GeluTanh>, raw::Binary<GeluTanhBackward>, raw::Unary<HardSigmoid>,
                  raw::Unary<HardSwish>, raw::Unary<HardShrink>, raw::Unary<SoftShrink>>;

}  // namespace gradus::functors
