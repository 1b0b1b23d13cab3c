// Initializers as torch.nn.init: fill a floating-point tensor in place and return it. Random values are
// computed on the host in f64 by the counter-based generator Philox, so element i depends only on the seed,
// the draw's number and i. On the meta device a draw is taken but nothing is written. fan_in and fan_out are
// those of weights [O, I, kernel...].
#include "gradus/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::nn::init {
namespace {

// Throws unless x is floating point and no open recording follows x.
void check(const char* op, const Tensor& x) {
  if (!is_floating(x.dtype())) throw DTypeError(op, "expected a floating-point tensor, got ", describe(x));
  if (autograd::is_tracked(x))
    throw StateError(op, "an open recording follows the tensor: run its backward or release it first");
}

using Bits = std::array<uint32_t, 4>;

// The random bits of one element; rejection sampling uses other bits for each attempt.
struct ElementBits {
  PhiloxKey key;
  int64_t element;
  Bits operator()(int attempt = 0) const {
    return philox(key.seed, key.stream,
                  static_cast<uint64_t>(element) | static_cast<uint64_t>(attempt) << 48);
  }
};

// Fills element i of x with f(bits of element i), computed in f64.
template <class F> const Tensor& fill_random(const char* op, const Tensor& x, F f) {
  check(op, x);
  refuse_capture(op, "the host computes the values");
  const PhiloxKey key = Context::current().generator->next();
  if (x.device().type == DeviceType::kMeta) return x;
  // Computes a few rows at a time, which bounds the temporary memory.
  const int64_t rows = x.dim() > 0 ? x.size(0) : 1, row = x.numel() / std::max<int64_t>(rows, 1);
  const int64_t max_rows = std::max<int64_t>((1 << 14) / std::max<int64_t>(row, 1), 1);
  for (int64_t r = 0; r < rows; r += max_rows) {
    const Tensor part = x.dim() > 0 ? raw::narrow(x, 0, r, std::min(max_rows, rows - r)) : x;
    const Tensor values = empty(part.shape(), {.dtype = DType::kF64});
    double* v = values.ptr<double>();
    parallel_for(0, part.numel(), 1 << 12, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) v[i] = f(ElementBits{key, r * row + i});
    });
    raw::copy_(part, values);
  }
  return x;
}

double uniform(const Bits& b) { return uniform_f64(b[0], b[1]); }

// Standard normal number by the Box-Muller transform.
double normal(const Bits& b) {
  const double u = 1 - uniform_f64(b[0], b[1]);  // in (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * uniform_f64(b[2], b[3]));
}

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

// Returns z in [z_low, z_high] with normal_cdf(z) = p, by 60 steps of bisection.
double normal_quantile(double p, double z_low, double z_high) {
  for (int i = 0; i < 60; ++i) {
    const double mid = (z_low + z_high) / 2;
    (normal_cdf(mid) < p ? z_low : z_high) = mid;
  }
  return (z_low + z_high) / 2;
}

double kaiming_std(const Tensor& x, const KaimingOptions& o) {
  const Fans f = fans(x);
  const int64_t fan = o.mode == FanMode::kFanIn ? f.in : f.out;
  return fan ? gain(o.nonlinearity, o.a) / std::sqrt(static_cast<double>(fan)) : 0.0;
}

double xavier_std(const Tensor& x, const XavierOptions& o) {
  const Fans f = fans(x);
  return f.in + f.out ? o.gain * std::sqrt(2.0 / static_cast<double>(f.in + f.out)) : 0.0;
}

const Tensor& fill_symmetric_uniform(const char* op, const Tensor& x, double bound) {
  return fill_random(op, x, [=](const ElementBits& d) { return bound * (2 * uniform(d()) - 1); });
}
const Tensor& fill_zero_mean_normal(const char* op, const Tensor& x, double stddev) {
  return fill_random(op, x, [=](const ElementBits& d) { return stddev * normal(d()); });
}

}  // namespace

Fans fans(const Tensor& weight) {
  if (weight.dim() < 2)
    throw ShapeError("fans", "fan_in and fan_out need at least 2 dimensions, got ", describe(weight));
  int64_t kernel = 1;
  for (int d = 2; d < weight.dim(); ++d) kernel *= weight.size(d);
  return {weight.size(1) * kernel, weight.size(0) * kernel};
}

double gain(Nonlinearity nonlinearity, double a) {
  switch (nonlinearity) {
    case Nonlinearity::kLinear:
    case Nonlinearity::kSigmoid:
      return 1;
    case Nonlinearity::kTanh:
      return 5.0 / 3;
    case Nonlinearity::kReLU:
      return std::numbers::sqrt2;
    case Nonlinearity::kLeakyReLU:
      return std::sqrt(2 / (1 + a * a));
    case Nonlinearity::kSELU:
      return 0.75;
  }
  throw InternalError("gain: unknown nonlinearity ", int(nonlinearity));
}

const Tensor& constant_(const Tensor& x, double value) {
  check("constant_", x);
  raw::fill_(x, value);
  return x;
}
const Tensor& zeros_(const Tensor& x) { return constant_(x, 0); }
const Tensor& ones_(const Tensor& x) { return constant_(x, 1); }

const Tensor& uniform_(const Tensor& x, UniformOptions o) {
  if (!(o.low <= o.high)) throw ValueError("uniform_", "expected low <= high, got ", o.low, " and ", o.high);
  return fill_random("uniform_", x,
                     [=](const ElementBits& d) { return o.low + (o.high - o.low) * uniform(d()); });
}

const Tensor& normal_(const Tensor& x, NormalOptions o) {
  if (!(o.stddev >= 0)) throw ValueError("normal_", "expected stddev >= 0, got ", o.stddev);
  return fill_random("normal_", x, [=](const ElementBits& d) { return o.mean + o.stddev * normal(d()); });
}

const Tensor& trunc_normal_(const Tensor& x, TruncNormalOptions o) {
  if (!(o.stddev > 0)) throw ValueError("trunc_normal_", "expected stddev > 0, got ", o.stddev);
  if (!(o.low < o.high))
    throw ValueError("trunc_normal_", "expected low < high, got ", o.low, " and ", o.high);
  // Mirrors an interval in the upper tail to the lower tail: normal_cdf near 1 loses all precision.
  const double sign = o.low > o.mean ? -1 : 1;
  const double ends[] = {sign * (o.low - o.mean) / o.stddev, sign * (o.high - o.mean) / o.stddev};
  const double a = std::max(std::min(ends[0], ends[1]), -38.0),
               b = std::min(std::max(ends[0], ends[1]), 38.0);
  const double p_a = normal_cdf(a), p_b = normal_cdf(b);
  // Rejection sampling if the interval [a, b] is likely, with the inverse CDF as the last resort; else
  // inverse CDF.
  const int tries = p_b - p_a > 0.2 ? 100 : 0;
  return fill_random("trunc_normal_", x, [=](const ElementBits& d) {
    for (int i = 1; i <= tries; ++i)
      if (const double z = normal(d(i)); z >= a && z <= b) return o.mean + o.stddev * sign * z;
    const double z = normal_quantile(p_a + (p_b - p_a) * uniform(d()), a, b);
    return std::clamp(o.mean + o.stddev * sign * z, o.low, o.high);
  });
}

const Tensor& xavier_uniform_(const Tensor& x, XavierOptions o) {
  return fill_symmetric_uniform("xavier_uniform_", x, std::sqrt(3.0) * xavier_std(x, o));
}
const Tensor& xavier_normal_(const Tensor& x, XavierOptions o) {
  return fill_zero_mean_normal("xavier_normal_", x, xavier_std(x, o));
}
const Tensor& kaiming_uniform_(const Tensor& x, KaimingOptions o) {
  return fill_symmetric_uniform("kaiming_uniform_", x, std::sqrt(3.0) * kaiming_std(x, o));
}
const Tensor& kaiming_normal_(const Tensor& x, KaimingOptions o) {
  return fill_zero_mean_normal("kaiming_normal_", x, kaiming_std(x, o));
}

const Tensor& orthogonal_(const Tensor& x, OrthogonalOptions o) {
  fans(x);
  check("orthogonal_", x);
  const Tensor values = empty(x.shape(), {.dtype = DType::kF64});
  normal_(values);
  if (x.device().type == DeviceType::kMeta || x.numel() == 0) return x;

  // Gram-Schmidt of a matrix [rows, cols] of normal numbers: of the rows, or of the columns of a tall matrix.
  // Each vector is orthogonalized twice, which makes the result orthogonal to machine precision.
  const int64_t rows = x.size(0), cols = x.numel() / rows;
  const bool tall = rows > cols;
  const int64_t count = std::min(rows, cols), length = std::max(rows, cols);
  double* v = values.ptr<double>();
  const auto at = [&](int64_t vec, int64_t k) -> double& {
    return tall ? v[k * cols + vec] : v[vec * cols + k];
  };
  for (int64_t i = 0; i < count; ++i) {
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < i; ++j) {
        double dot = 0;
        for (int64_t k = 0; k < length; ++k) dot += at(i, k) * at(j, k);
        for (int64_t k = 0; k < length; ++k) at(i, k) -= dot * at(j, k);
      }
    double square = 0;
    for (int64_t k = 0; k < length; ++k) square += at(i, k) * at(i, k);
    for (int64_t k = 0; k < length; ++k) at(i, k) /= std::sqrt(square);
  }
  for (int64_t i = 0; i < x.numel(); ++i) v[i] *= o.gain;
  raw::copy_(x, values);
  return x;
}

}  // namespace gradus::nn::init
