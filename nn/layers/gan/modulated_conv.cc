// ModulatedConv2d by existing ops. The factors of the styles, s[n,i], and of the demodulation, d[n,o], multiply
// channels of x and y (kScaled), or the weight of a convolution with N groups (kGrouped).
#include "gradus/nn/layers/gan/modulated_conv.h"

#include <cmath>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/layers/gan/resampling_conv.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {

ModulatedConv2d::ModulatedConv2d(Module* parent, std::string name, Options options)
    : ModuleWith(parent, std::move(name), std::move(options)) {
  initialize_affine();
}
ModulatedConv2d::ModulatedConv2d(Options options) : ModuleWith(std::move(options)) { initialize_affine(); }

Tensor ModulatedConv2d::initial_weight() const {
  const Options& o = options();
  if (o.in < 1 || o.out < 1 || o.style < 1 || o.kernel < 1 || o.kernel % 2 == 0 || o.up < 1 || o.down < 1 ||
      (o.up > 1 && o.down > 1))
    throw ValueError(
        "ModulatedConv2d",
        "expected in, out, style >= 1, an odd kernel and at most one of up, down above 1, got in ", *o.in,
        ", out ", *o.out, ", style ", *o.style, ", kernel ", *o.kernel, ", up ", o.up, ", down ", o.down);
  return init::normal_(empty({o.out, o.in, o.kernel, o.kernel}, {.device = internal::initial_device()}));
}
Tensor ModulatedConv2d::initial_filter() const {
  if (options().taps.empty() && options().up == 1 && options().down == 1) return {};
  return gradus::to(gradus::to(fir_filter(options().taps), weight.dtype()), internal::initial_device());
}
void ModulatedConv2d::initialize_affine() {
  init::normal_(affine.weight);
  init::ones_(affine.bias);
}

// Returns the factors of the output channels, s [N,in] -> [N,out]: gain / sqrt(sum over i of
// s[n,i]^2 (sum over k of weight[o,i,k]^2) + eps).
Tensor ModulatedConv2d::demodulation(const Tensor& s) const {
  const Options& o = options();
  // Computes in f32 also under autocast, because eps would be 0 in f16.
  const autograd::NoAutocast full_precision;
  const DType wide = weight.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Tensor squares = sum(square(gradus::to(weight, wide)), {2, 3});  // [out,in]
  const double eps = 1e-8 / double(o.in * o.kernel * o.kernel);
  const Tensor d = rsqrt(matmul(square(gradus::to(s, wide)), transpose(squares, 0, 1)) + eps);
  return o.gain == 1 ? d : d * o.gain;
}

Tensor ModulatedConv2d::forward(const Tensor& x, const Tensor& w) {
  const Options& o = options();
  if (x.dim() != 4 || x.size(1) != o.in || w.dim() != 2 || w.size(0) != x.size(0) || w.size(1) != o.style)
    throw ShapeError("ModulatedConv2d", "expected x [N,", *o.in, ",H,W] and w [N,", *o.style, "], got ",
                     describe(x), " and ", describe(w));
  const int64_t N = x.size(0), K = o.kernel;
  // The factor 1/sqrt(in kernel^2) keeps products within the range of f16, also where demodulation removes it.
  const double scale = 1 / std::sqrt(double(o.in * K * K));
  const Tensor s = affine(w * (1 / std::sqrt(double(o.style)))) * (o.demodulate ? scale : scale * o.gain);
  Tensor d;  // [N,out]; undefined without demodulation
  if (o.demodulate) d = demodulation(s);
  if (o.form == ModulationForm::kScaled || N == 0) {
    const Tensor scaled = x * reshape(gradus::to(s, x.dtype()), {N, o.in, 1, 1});
    const Tensor y = resampled_conv2d(scaled, weight, {}, resample_filter, {.up = o.up, .down = o.down});
    return d.defined() ? y * reshape(gradus::to(d, y.dtype()), {N, o.out, 1, 1}) : y;
  }
  Tensor v = weight * reshape(gradus::to(s, weight.dtype()), {N, 1, o.in, 1, 1});  // [N,out,in,K,K]
  if (d.defined()) v = v * reshape(gradus::to(d, weight.dtype()), {N, o.out, 1, 1, 1});
  const Tensor y =
      resampled_conv2d(reshape(x, {1, N * o.in, x.size(2), x.size(3)}), reshape(v, {N * o.out, o.in, K, K}),
                       {}, resample_filter, {.up = o.up, .down = o.down, .groups = N});
  return reshape(y, {N, o.out, y.size(2), y.size(3)});
}

template class ModuleWith<ModulatedConv2dOptions>;

}  // namespace gradus::nn
