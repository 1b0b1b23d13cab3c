// Group norm, instance norm and local response norm for x [N, C, ...]. Group norm runs fused kernels for the
// output and for first and second derivatives; third and higher derivatives are composed of differentiable
// ops. Instance norm is group norm with C groups. Local response norm is composed of channel_window_sum and
// pointwise ops.
#include "gradus/autograd/ops/norm/group_norm.h"

#include <algorithm>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/tracking.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/norm/batch_norm.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/norm/group_norm.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using autograd::at_least_f32;

// Errors: ShapeError unless x has min_dims to 5 dims; DTypeError unless x is floating point.
void check_image(const char* op, const Tensor& x, int min_dims) {
  if (x.dim() < min_dims || x.dim() > 5)
    throw ShapeError(op, "expected x of ", min_dims, " to 5 dims, [N,C,...]: x ", describe(x));
  check_floating(op, "x", x);
}

// Checks that each defined tensor has shape [C], the device of x, and the dtype of x or f32.
void check_channels(const char* op, const Tensor& x,
                    std::initializer_list<std::pair<const char*, const Tensor*>> named) {
  for (const auto& [name, t] : named) {
    if (!t->defined()) continue;
    if (t->dim() != 1 || t->size(0) != x.size(1))
      throw ShapeError(op, name, " must have ", x.size(1), " elements: ", name, ' ', describe(*t), ", x ",
                       describe(x));
    if (t->dtype() != x.dtype() && t->dtype() != at_least_f32(x.dtype()))
      internal::throw_dtype_mismatch(op, "x", x, name, *t);
    autograd::check_same_device(op, "x", x, name, *t);
  }
}

// Returns t[C] as [1,C,1,...], to broadcast with x.
Tensor per_channel(const Tensor& t, const Tensor& x) {
  Shape shape = Dims::filled(x.dim(), 1);
  shape[1] = x.size(1);
  return reshape(t, shape);
}

Dims all_but_channels(const Tensor& x) {
  Dims dims{0};
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

// Computes the gradients of group_norm_backward by differentiable ops, for third order. The formulas are
// those of the kernel group_norm_double_backward. ddx [N, C, ...], ddweight and ddbias [C] are the gradients
// of dx, dweight and dbias; undefined ddweight or ddbias counts as zeros, an undefined weight as ones.
// group_norm_backward computes, with r = 1 / sqrt(var + eps), z = (x - mean) r and u = dy weight:
//   dx = r (u - mean(u) - z mean(u z)),  dweight = sum(dy z),  dbias = sum(dy)
raw::GroupNormDoubleGrads double_grads_by_ops(const Tensor& ddx, const Tensor& ddweight, const Tensor& ddbias,
                                              const Tensor& dy, const Tensor& x, const Tensor& weight,
                                              const raw::GroupNormSpec& spec) {
  const DType type = at_least_f32(x.dtype());
  const Shape grouped{x.size(0), spec.groups, x.numel() == 0 ? 0 : x.numel() / (x.size(0) * spec.groups)};
  const auto by_group = [&](const Tensor& t) { return reshape(t, grouped); };
  const auto like_x = [&](const Tensor& t) { return reshape(t, x.shape()); };
  const auto group_mean = [](const Tensor& t) { return mean(t, 2, true); };
  const auto scaled = [&](const Tensor& t, const Tensor& by) { return t * per_channel(to(by, type), x); };

  const Tensor g = to(dy, type), a = by_group(to(ddx, type)), v = by_group(to(x, type));
  const Tensor centered = v - group_mean(v), r = rsqrt(group_mean(square(centered)) + spec.eps);
  const Tensor z = centered * r, u = by_group(weight.defined() ? scaled(g, weight) : g);
  const auto normal = [&](const Tensor& t) { return t - group_mean(t) - z * group_mean(t * z); };
  const Tensor mean_az = group_mean(a * z), mean_uz = group_mean(u * z);
  const Tensor of_std = group_mean(a * u) - group_mean(a) * group_mean(u) - mean_az * mean_uz;
  const Tensor of_g = like_x(r * normal(a));

  Tensor h = -r * (a * mean_uz + u * mean_az), ddy = weight.defined() ? scaled(of_g, weight) : of_g;
  if (ddweight.defined()) h = h + by_group(scaled(g, ddweight)), ddy = ddy + scaled(like_x(z), ddweight);
  if (ddbias.defined()) ddy = ddy + per_channel(to(ddbias, type), x);
  return {ddy, like_x(r * normal(h) - square(r) * z * of_std), sum(g * of_g, all_but_channels(x), false)};
}

// group_norm_backward as a recorded op, for second order. mean and var are f64 [N, groups], saved by the
// forward.
raw::GroupNormGrads recorded_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                      const Tensor& mean, const Tensor& var, const raw::GroupNormSpec& spec) {
  const OpCall call("group_norm_backward", {{"dy", dy}, {"x", x}});
  const raw::GroupNormGrads g = raw::group_norm_backward(dy, x, mean, var, weight, spec);
  if (Recorder r{"group_norm_backward", dy, x, weight}) {
    const Tensor outputs[] = {g.dx, g.dweight, g.dbias};
    r.record_joint(outputs, {dy, x, weight},
                   [dy = r.save(dy), x = r.save(x), weight = r.save(weight), mean, var, spec](
                       std::vector<Tensor> dds, autograd::Needs) -> std::vector<Tensor> {
                     const Tensor g = dy.get(), v = x.get(), w = weight.get();
                     if (!dds[0].defined()) dds[0] = zeros_like(v);
                     const bool third_order = std::any_of(dds.begin(), dds.end(), autograd::is_tracked) ||
                                              autograd::any_tracked(g, v, w);
                     const auto grads = third_order
                                            ? double_grads_by_ops(dds[0], dds[1], dds[2], g, v, w, spec)
                                            : raw::group_norm_double_backward(dds[0], dds[1], dds[2], g, v,
                                                                              mean, var, w, spec);
                     return {grads.ddy, grads.dx, grads.dweight};
                   });
  }
  return g;
}

// Group norm, differentiable, with the mean and variance of each sample and group.
raw::GroupNormResult normalized(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const raw::GroupNormSpec& spec) {
  raw::GroupNormResult result = raw::group_norm(x, weight, bias, spec);
  if (Recorder r{op, x, weight, bias})
    r.record_joint({&result.y, 1}, {x, weight, bias},
                   [x = r.save(x), weight = r.save(weight), mean = result.mean, var = result.var, spec](
                       std::vector<Tensor> dys, autograd::Needs) -> std::vector<Tensor> {
                     const auto g = recorded_backward(dys[0], x.get(), weight.get(), mean, var, spec);
                     return {g.dx, g.dweight, g.dbias};
                   });
  return result;
}

// running = (1 - momentum) running + momentum factor mean(samples over N), for running [C] and samples [N,C].
void update_running(const Tensor& running, const Tensor& samples, double factor, double momentum) {
  const Tensor batch = raw::mul(raw::mean(samples, {0}, false), factor);
  raw::copy_(running, raw::lerp(raw::to(running, DType::kF64), batch, momentum));
}

}  // namespace

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  const OpCall call("group_norm", {{"x", x}});
  const char* op = "group_norm";
  check_image(op, x, 2);
  if (groups < 1 || x.size(1) % groups != 0)
    throw ValueError(op, "groups must be at least 1 and divide the channels, got ", groups, ": x ",
                     describe(x));
  check_channels(op, x, {{"weight", &weight}, {"bias", &bias}});
  if (!(eps >= 0)) throw ValueError(op, "eps must be at least 0, got ", eps);
  return normalized(op, x, weight, bias, {.groups = groups, .eps = eps}).y;
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, const InstanceNormFuncOptions& o) {
  const OpCall call("instance_norm", {{"x", x}});
  const char* op = "instance_norm";
  check_image(op, x, 3);
  check_channels(
      op, x,
      {{"running_mean", &running_mean}, {"running_var", &running_var}, {"weight", &weight}, {"bias", &bias}});
  if (!(o.eps >= 0)) throw ValueError(op, "eps must be at least 0, got ", o.eps);
  if (running_mean.defined() != running_var.defined())
    throw ValueError(op, "running_mean and running_var are given together or not at all");
  if (!o.use_input_stats) {
    if (!running_mean.defined())
      throw ValueError(op, "has no running statistics to normalize by, and use_input_stats is off");
    const DType type = at_least_f32(x.dtype());
    const auto as = [&](const Tensor& t) { return t.defined() ? to(t, type) : t; };
    return to(
        batch_norm(to(x, type), as(weight), as(bias), as(running_mean), as(running_var), {.eps = o.eps}),
        x.dtype());
  }
  int64_t positions = 1;
  for (int d = 2; d < x.dim(); ++d) positions *= x.size(d);
  if (positions == 1) throw ValueError(op, "needs more than one position per channel: x ", describe(x));
  if (x.size(1) == 0) return x;
  const raw::GroupNormResult result = normalized(op, x, weight, bias, {.groups = x.size(1), .eps = o.eps});
  if (running_mean.defined() && x.numel() > 0 && !autograd::is_recomputing()) {
    update_running(running_mean, result.mean, 1, o.momentum);
    update_running(running_var, result.var, double(positions) / double(positions - 1), o.momentum);
  }
  return result.y;
}

Tensor channel_window_sum(const Tensor& x, const ChannelWindowOptions& window) {
  const OpCall call("channel_window_sum", {{"x", x}});
  const char* op = "channel_window_sum";
  check_image(op, x, 2);
  if (window.before < 0 || window.after < 0)
    throw ValueError(op, "expected extents of at least 0, got ", window.before, " before and ", window.after,
                     " after");
  return autograd::record_unary(
      op, x, raw::channel_window_sum(x, {window.before, window.after}), [window](const Tensor& dy) {
        return channel_window_sum(dy, {.before = window.after, .after = window.before});
      });
}

Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormFuncOptions& o) {
  const OpCall call("local_response_norm", {{"x", x}});
  const char* op = "local_response_norm";
  check_image(op, x, 3);
  if (size < 1) throw ValueError(op, "expected a size of at least 1, got ", size);
  const Tensor v = to(x, at_least_f32(x.dtype()));
  const Tensor sums = channel_window_sum(square(v), {.before = size / 2, .after = (size - 1) / 2});
  return to(v * pow(sums * (o.alpha / double(size)) + o.k, -o.beta), x.dtype());
}

}  // namespace gradus
