// Activation layers. Each applies the op of the same name (gradus/autograd/ops/activations.h, softmax.h) to
// every element; Softmax, Softmin, LogSoftmax, Softmax2d and GLU apply it along one dim. Inputs are
// floating-point tensors of any shape; results have the input's shape and dtype, except that GLU halves its
// dim. An OpLayer passes the listed members of its options to the op. Required options have no default.
// Errors of a call are the op's, also those for options out of range.
#pragma once

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/softmax.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct NoOptions {};

extern template class ModuleWith<NoOptions, Layer>;

// max(x, 0)
class ReLU final : public LayerWith<NoOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;

 private:
  Tensor forward_temporary(Tensor&& x) override;  // may overwrite x
};

// min(max(x, 0), 6)
using ReLU6 = OpLayer<NoOptions, &relu6, "ReLU6">;
// 1 / (1 + exp(-x))
using Sigmoid = OpLayer<NoOptions, &sigmoid, "Sigmoid">;
// log(sigmoid(x))
using LogSigmoid = OpLayer<NoOptions, &logsigmoid, "LogSigmoid">;
using Tanh = OpLayer<NoOptions, &tanh, "Tanh">;
// x - tanh(x)
using Tanhshrink = OpLayer<NoOptions, &tanhshrink, "Tanhshrink">;
// x / (1 + |x|)
using Softsign = OpLayer<NoOptions, &softsign, "Softsign">;
// x sigmoid(x)
using SiLU = OpLayer<NoOptions, &silu, "SiLU">;
// x tanh(softplus(x))
using Mish = OpLayer<NoOptions, &mish, "Mish">;
// scale * ELU with alpha 1.6733 and scale 1.0507, which preserve mean 0 and variance 1
using SELU = OpLayer<NoOptions, &selu, "SELU">;
// min(max(x / 6 + 1 / 2, 0), 1)
using Hardsigmoid = OpLayer<NoOptions, &hardsigmoid, "Hardsigmoid">;
// x hardsigmoid(x)
using Hardswish = OpLayer<NoOptions, &hardswish, "Hardswish">;

struct LeakyReLUOptions {
  double negative_slope = 0.01;
};
extern template class ModuleWith<LeakyReLUOptions, Layer>;
// x where x > 0, else negative_slope x
using LeakyReLU = OpLayer<LeakyReLUOptions, &leaky_relu, "LeakyReLU", &LeakyReLUOptions::negative_slope>;

struct PReLUOptions {
  int64_t num_parameters = 1;  // 1, or the number of channels
  double init = 0.25;          // initial value of the weight
};
extern template class ModuleWith<PReLUOptions, Layer>;
// x where x > 0, else weight x. The weight is learned, one for all elements or one for each channel.
// Shapes: x [N,C,...], weight [num_parameters].
// Errors of the constructor: ValueError for num_parameters < 1.
class PReLU final : public LayerWith<PReLUOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial()};
  Tensor forward(const Tensor& x) override;

 private:
  Tensor initial() const;
};

struct RReLUOptions {
  double lower = 1.0 / 8, upper = 1.0 / 3;
};
extern template class ModuleWith<RReLUOptions, Layer>;
// x where x >= 0, else a x. In training a is drawn for each element from the uniform distribution on [lower,
// upper], by the Context's generator; in evaluation a is (lower + upper) / 2.
// Errors of a call: ValueError unless lower <= upper.
// Source: Xu et al., "Empirical evaluation of rectified activations", 2015.
class RReLU final : public LayerWith<RReLUOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

struct ELUOptions {
  double alpha = 1;
};
extern template class ModuleWith<ELUOptions, Layer>;
// x where x > 0, else alpha (exp(x) - 1)
using ELU = OpLayer<ELUOptions, &elu, "ELU", &ELUOptions::alpha>;
// x where x > 0, else alpha (exp(x / alpha) - 1)
using CELU = OpLayer<ELUOptions, &celu, "CELU", &ELUOptions::alpha>;

struct GELUOptions {
  Gelu approximate = Gelu::kExact;
};
extern template class ModuleWith<GELUOptions, Layer>;
// x Phi(x), with Phi the cumulative distribution function of the standard normal distribution: exact, by erf,
// or approximated by tanh
using GELU = OpLayer<GELUOptions, &gelu, "GELU", &GELUOptions::approximate>;

struct SoftplusOptions {
  double beta = 1, threshold = 20;
};
extern template class ModuleWith<SoftplusOptions, Layer>;
// log(1 + exp(beta x)) / beta; x where beta x > threshold
using Softplus =
    OpLayer<SoftplusOptions, &softplus, "Softplus", &SoftplusOptions::beta, &SoftplusOptions::threshold>;

struct HardtanhOptions {
  double low = -1, high = 1;
};
extern template class ModuleWith<HardtanhOptions, Layer>;
// min(max(x, low), high)
using Hardtanh =
    OpLayer<HardtanhOptions, &hardtanh, "Hardtanh", &HardtanhOptions::low, &HardtanhOptions::high>;

struct ShrinkOptions {
  double lambda = 0.5;
};
extern template class ModuleWith<ShrinkOptions, Layer>;
// x where |x| > lambda, else 0
using Hardshrink = OpLayer<ShrinkOptions, &hardshrink, "Hardshrink", &ShrinkOptions::lambda>;
// sign(x) max(|x| - lambda, 0)
using Softshrink = OpLayer<ShrinkOptions, &softshrink, "Softshrink", &ShrinkOptions::lambda>;

struct ThresholdOptions {
  Required<double, "threshold"> threshold;
  Required<double, "value"> value;
};
extern template class ModuleWith<ThresholdOptions, Layer>;
// x where x > threshold, else `value`
class Threshold final : public LayerWith<ThresholdOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

struct GLUOptions {
  int64_t dim = -1;
};
extern template class ModuleWith<GLUOptions, Layer>;
// a sigmoid(b), where a and b are the halves of x along `dim`
using GLU = OpLayer<GLUOptions, &glu, "GLU", &GLUOptions::dim>;

struct SoftmaxOptions {
  Required<int64_t, "dim"> dim;
};
extern template class ModuleWith<SoftmaxOptions, Layer>;
// exp(x) / sum exp(x) along `dim`
using Softmax = OpLayer<SoftmaxOptions, &softmax, "Softmax", &SoftmaxOptions::dim>;
// softmax(-x) along `dim`
class Softmin final : public LayerWith<SoftmaxOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};
// log softmax(x) along `dim`
using LogSoftmax = OpLayer<SoftmaxOptions, &log_softmax, "LogSoftmax", &SoftmaxOptions::dim>;
// softmax over the channels of images [N,C,H,W] or [C,H,W]
class Softmax2d final : public LayerWith<NoOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
