// LayerNorm and RMSNorm: the initial parameters (ones and zeros); the ops layer_norm and rms_norm compute.
#include "gradus/nn/layers/layer_norm.h"

#include <algorithm>

#include "gradus/autograd/ops/norm/layer_norm.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"

namespace gradus::nn {
namespace {

// Returns a tensor of this shape filled with `value`, an undefined tensor unless `enabled`.
// Errors: ValueError, named `layer`, for no dims or sizes below 1.
Tensor initial_parameter(const char* layer, const Shape& shape, bool enabled, double value) {
  if (shape.size() == 0 || std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 1; }))
    throw ValueError(layer, "expected a shape of sizes >= 1, got ", shape);
  return enabled ? init::constant_(empty(shape, {.device = internal::initial_device()}), value) : Tensor();
}

}  // namespace

Tensor LayerNorm::initial(bool enabled, double value) const {
  return initial_parameter("LayerNorm", options().shape, enabled, value);
}
Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, *options().shape, weight, bias, options().eps);
}

Tensor RMSNorm::initial() const { return initial_parameter("RMSNorm", options().shape, options().affine, 1); }
Tensor RMSNorm::forward(const Tensor& x) { return rms_norm(x, *options().shape, weight, options().eps); }

template class ModuleWith<LayerNormOptions, Layer>;
template class ModuleWith<RMSNormOptions, Layer>;
}  // namespace gradus::nn
