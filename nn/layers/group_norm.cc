// GroupNorm, InstanceNorm and LocalResponseNorm: options and shapes are checked here, the ops of the same
// names compute. InstanceNorm adds a batch dim to a single sample and removes the dim from the result.
#include "gradus/nn/layers/group_norm.h"

#include "gradus/autograd/ops/norm/group_norm.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {
namespace {

// Returns initial values, on the device for new parameters.
Tensor constant(const Shape& shape, double value) {
  return init::constant_(empty(shape, {.device = internal::initial_device()}), value);
}

}  // namespace

Tensor GroupNorm::initial(double value) const {
  const Options& o = options();
  if (o.groups < 1 || o.channels < 1 || o.channels % o.groups != 0)
    throw ValueError("GroupNorm", "expected channels >= 1, a multiple of groups >= 1, got groups ", *o.groups,
                     ", channels ", *o.channels);
  return o.affine ? constant({*o.channels}, value) : Tensor();
}
Tensor GroupNorm::forward(const Tensor& x) {
  const Options& o = options();
  if (x.dim() < 2 || x.size(1) != o.channels)
    throw ShapeError("GroupNorm", "expected x [N,", *o.channels, ",...], got ", describe(x));
  return group_norm(x, o.groups, weight, bias, o.eps);
}

Tensor InstanceNorm::initial(bool enabled, double value) {
  if (options().features == kLazy) return uninitialized();
  if (options().features < 1)
    throw ValueError("InstanceNorm", "expected features >= 1, got ", *options().features);
  return enabled ? constant({*options().features}, value) : Tensor();
}
Tensor InstanceNorm::initial_count() const {
  return options().track_running_stats ? zeros({}, {DType::kI64, internal::initial_device()}) : Tensor();
}
// Creates the parameters and buffers of a layer with features = kLazy in its first call.
void InstanceNorm::set_size(int64_t features) {
  mutable_options().features = features;
  initialize(weight, initial(options().affine, 1));
  initialize(bias, initial(options().affine, 0));
  initialize(running_mean, initial(options().track_running_stats, 0));
  initialize(running_var, initial(options().track_running_stats, 1));
  set_initialized();
}

Tensor InstanceNorm::forward(const Tensor& x) {
  const Options& o = options();
  const int rank = spatial_dims();
  const bool has_batch = x.dim() == rank + 2, fits = has_batch || x.dim() == rank + 1;
  if (fits && !has_sizes()) set_size(x.size(has_batch ? 1 : 0));
  if (!fits || x.size(has_batch ? 1 : 0) != o.features) {
    const char* spatial[] = {"", "L", "H,W", "D,H,W"};
    throw ShapeError(type_name().c_str(), "expected x [N,", internal::value_text(o.features), ",",
                     spatial[rank], "] or without N, got ", describe(x));
  }
  const Tensor y = instance_norm(
      has_batch ? x : unsqueeze(x, 0), running_mean, running_var, weight, bias,
      {.use_input_stats = is_training() || !o.track_running_stats, .momentum = o.momentum, .eps = o.eps});
  return has_batch ? y : squeeze(y, 0);
}

Tensor LocalResponseNorm::forward(const Tensor& x) {
  const Options& o = options();
  return local_response_norm(x, o.size, {.alpha = o.alpha, .beta = o.beta, .k = o.k});
}

template class ModuleWith<GroupNormOptions, Layer>;
template class ModuleWith<InstanceNormOptions, Layer>;
template class ModuleWith<LocalResponseNormOptions, Layer>;
}  // namespace gradus::nn
