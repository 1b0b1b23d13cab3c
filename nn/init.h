// Initializers, as torch.nn.init: fill a tensor in place with constants or with random numbers of the
// Context's generator. Random numbers are computed in f64 on the host as a function of the element's
// row-major index, so they are the same for any number of threads, device, layout and (up to rounding) dtype.
//
// For a weight [out, in, ...kernel], fan_in is in * kernel size and fan_out is out * kernel size.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::nn::init {

enum class FanMode { kFanIn, kFanOut };
enum class Nonlinearity { kLinear, kSigmoid, kTanh, kReLU, kLeakyReLU, kSELU };

struct KaimingOptions {
  double a = 0;  // negative slope, for kLeakyReLU only
  FanMode mode = FanMode::kFanIn;
  Nonlinearity nonlinearity = Nonlinearity::kLeakyReLU;
};
struct XavierOptions {
  double gain = 1;
};
struct UniformOptions {
  double low = 0, high = 1;
};
struct NormalOptions {
  double mean = 0, stddev = 1;
};
struct TruncNormalOptions {
  double mean = 0, stddev = 1, low = -2, high = 2;  // low and high bound the values themselves
};
struct OrthogonalOptions {
  double gain = 1;
};

struct Fans {
  int64_t in, out;
};
// Returns fan_in and fan_out.
// Errors: ShapeError for fewer than 2 dims.
Fans fans(const Tensor& weight);
// Returns the recommended gain of a nonlinearity: 1 for linear and sigmoid, 5/3 for tanh, sqrt(2) for ReLU,
// sqrt(2 / (1 + a^2)) for leaky ReLU, 3/4 for SELU.
double gain(Nonlinearity nonlinearity, double a = 0.01);

// Fill x and return it. Each call with random numbers takes one draw of the generator, also for a meta
// tensor.
// Errors: DTypeError unless floating point; StateError while an open recording follows x; ValueError unless
// low <= high, or for a negative standard deviation (trunc_normal_: unless low < high and stddev > 0);
// ShapeError of xavier_*, kaiming_* and orthogonal_ for fewer than 2 dims.
const Tensor& constant_(const Tensor& x, double value);
const Tensor& zeros_(const Tensor& x);
const Tensor& ones_(const Tensor& x);
const Tensor& uniform_(const Tensor& x, UniformOptions options = {});
const Tensor& normal_(const Tensor& x, NormalOptions options = {});
// Draws from the normal distribution truncated to [low, high].
const Tensor& trunc_normal_(const Tensor& x, TruncNormalOptions options = {});
// Draws from U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)).
// Source: Glorot and Bengio, AISTATS 2010.
const Tensor& xavier_uniform_(const Tensor& x, XavierOptions options = {});
// Draws from N(0, s^2), s = gain sqrt(2 / (fan_in + fan_out)).
const Tensor& xavier_normal_(const Tensor& x, XavierOptions options = {});
// Draws from U(-b, b), b = gain sqrt(3 / fan).
// Source: He et al., ICCV 2015.
const Tensor& kaiming_uniform_(const Tensor& x, KaimingOptions options = {});
// Draws from N(0, s^2), s = gain / sqrt(fan).
const Tensor& kaiming_normal_(const Tensor& x, KaimingOptions options = {});
// Draws a (semi-)orthogonal matrix, with x viewed as a matrix [x.size(0), x.numel() / x.size(0)].
// Source: Saxe et al., ICLR 2014.
const Tensor& orthogonal_(const Tensor& x, OrthogonalOptions options = {});

}  // namespace gradus::nn::init
