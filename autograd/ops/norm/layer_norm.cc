// Layer norm and RMS norm over the last dims, with fused forward and backward kernels:
//   y = n * weight + bias,  n = (x - mean(x)) / sqrt(var(x) + eps);  RMS norm: n = x / sqrt(mean(x^2) + eps)
// weight and bias have the shape of the normalized dims; undefined: 1 and 0.
#include "gradus/autograd/ops/norm/layer_norm.h"

#include <limits>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/norm/layer_norm.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using autograd::at_least_f32;

// Checks x, normalized_shape `shape`, eps, and the parameters `named`, with their names in errors.
void check(const char* op, const Tensor& x, const Shape& shape, double eps,
           std::initializer_list<std::pair<const char*, const Tensor*>> named) {
  check_floating(op, "x", x);
  bool ends = shape.size() > 0 && shape.size() <= x.dim();
  for (int d = 0; ends && d < shape.size(); ++d) ends = x.shape()[x.dim() - shape.size() + d] == shape[d];
  if (!ends)
    throw ShapeError(op, "expected x to end with a normalized_shape of at least one dim, got ", shape, ": x ",
                     describe(x));
  if (!(eps >= 0)) throw ValueError(op, "eps must be at least 0, got ", eps);
  for (const auto& [name, t] : named) {
    if (!t->defined()) continue;
    if (t->shape() != shape)
      throw ShapeError(op, name, " must be shaped ", shape, " as normalized_shape: ", name, ' ',
                       describe(*t));
    if (t->dtype() != x.dtype() && t->dtype() != at_least_f32(x.dtype()))
      internal::throw_dtype_mismatch(op, "x", x, name, *t);
    autograd::check_same_device(op, "x", x, name, *t);
  }
}

// Computes the gradients by differentiable ops, for gradients of higher order. With g = dy * weight:
//   dx = (g - mean(g) - n mean(g n)) / sqrt(var + eps), without mean(g) for RMS norm
//   dweight = sum over rows of dy n,  dbias = sum over rows of dy
raw::LayerNormGrads grads_by_ops(const Tensor& dy, const Tensor& x, const Tensor& weight, int dims,
                                 const raw::LayerNormSpec& spec) {
  const DType type = at_least_f32(x.dtype());
  const Tensor v = to(x, type), g = to(dy, type);
  Dims last, others;
  for (int d = 0; d < x.dim(); ++d) (d < x.dim() - dims ? others : last).push_back(d);
  const Tensor centered = spec.centered ? v - mean(v, last, true) : v;
  const Tensor inv_std = rsqrt(mean(square(centered), last, true) + spec.eps);
  const Tensor normal = centered * inv_std;
  const Tensor gw = weight.defined() ? g * weight : g;
  const Tensor rest = normal * mean(gw * normal, last, true);
  // sum() with an empty list would reduce all dims.
  const auto over_rows = [&](const Tensor& t) { return others.size() ? sum(t, others, false) : t; };
  return {inv_std * (spec.centered ? gw - mean(gw, last, true) - rest : gw - rest), over_rows(g * normal),
          over_rows(g)};
}

// Layer norm over the last `dims` dims, or RMS norm if spec.centered is false, differentiable.
Tensor normalized(const char* op, const Tensor& x, int dims, const Tensor& weight, const Tensor& bias,
                  const raw::LayerNormSpec& spec) {
  const auto [y, stats] = raw::layer_norm(x, dims, weight, bias, spec);
  if (Recorder r{op, x, weight, bias})
    r.record_joint({&y, 1}, {x, weight, bias},
                   [x = r.save(x), weight = r.save(weight), stats = stats, dims, spec](
                       std::vector<Tensor> dys, autograd::Needs) -> std::vector<Tensor> {
                     const Tensor dy = dys[0], v = x.get(), w = weight.get();
                     const bool second_order = autograd::any_tracked(dy, v, w);
                     const auto g = second_order ? grads_by_ops(dy, v, w, dims, spec)
                                                 : raw::layer_norm_backward(dy, v, stats, w, dims, spec);
                     return {g.dx, g.dweight, g.dbias};
                   });
  return y;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const OpCall call("layer_norm", {{"x", x}});
  check("layer_norm", x, normalized_shape, eps, {{"weight", &weight}, {"bias", &bias}});
  return normalized("layer_norm", x, normalized_shape.size(), weight, bias, {.eps = eps});
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  const OpCall call("rms_norm", {{"x", x}});
  const double eps_or_default =
      eps.value_or(x.dtype() == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                            : double(std::numeric_limits<float>::epsilon()));
  check("rms_norm", x, normalized_shape, eps_or_default, {{"weight", &weight}});
  return normalized("rms_norm", x, normalized_shape.size(), weight, {},
                    {.eps = eps_or_default, .centered = false});
}

}  // namespace gradus
