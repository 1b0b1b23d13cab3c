// Raw batch norm, y = (x - mean) / sqrt(var + eps) * weight + bias per channel, and its gradients: checks the
// arguments, converts them to the layout of the kernels, allocates results, and calls the kernels of x's
// device. x [N, C, ...] is passed channels-last, per-channel tensors [C] row-major in channel_dtype (f32, or
// f64 for f64). Undefined weight and bias mean 1 and 0. An empty x skips the kernel: per-channel results are
// 0, and running statistics do not change.
#include "gradus/tensor/ops/norm/batch_norm.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// Returns x with the channels innermost in memory, a copy if necessary; channels_innermost_like, an
// uninitialized tensor of x's shape in this layout.
Tensor channels_innermost(const Tensor& x) { return x.dim() == 2 ? contiguous(x) : channels_last(x); }
Tensor channels_innermost_like(const Tensor& x, DType dtype) {
  const TensorOptions options{dtype, x.device()};
  return x.dim() == 2 ? empty(x.shape(), options) : empty_channels_last(x.shape(), options);
}
Tensor channels_innermost_like(const Tensor& x) { return channels_innermost_like(x, x.dtype()); }
Tensor by_channel(const Tensor& t, const Tensor& x) { return contiguous(to(t, channel_dtype(x.dtype()))); }
Tensor by_channel_if_any(const Tensor& t, const Tensor& x) { return t.defined() ? by_channel(t, x) : t; }

void check_like_x(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  if (!(t.shape() == x.shape()) || t.dtype() != x.dtype() || t.device() != x.device())
    throw ShapeError(op, name, " must be like x: ", name, ' ', describe(t), ", x ", describe(x));
}

// Checks running statistics against a batch's mean [C]. They have mean's dtype or `narrow`, x's dtype.
void check_update(const char* op, const RunningStatistics& running, const Tensor& mean, DType narrow) {
  if (const Tensor& batches = running.batches; batches.defined()) {
    if (batches.dtype() != DType::kI64 || batches.numel() != 1 || batches.device() != mean.device())
      throw ShapeError(op, "num_batches_tracked must be i64[] beside the statistics: ", describe(batches),
                       ", mean ", describe(mean));
  }
  for (const Tensor* t : {&running.mean, &running.var}) {
    if (!t->defined()) continue;
    if (!t->is_row_major() || !(t->shape() == mean.shape()))
      throw ShapeError(op, "running statistics must be row-major ", mean.shape(), ": ", describe(*t));
    if (channel_dtype(t->dtype()) != mean.dtype() || (t->dtype() != mean.dtype() && t->dtype() != narrow))
      throw DTypeError(op, "running statistics are ", t->dtype(), " but the batch's are ", mean.dtype(), ": ",
                       describe(*t), conversion_hint("x", t->dtype()));
  }
}

// Increments the storage versions of running statistics that a kernel has written to.
void count_update(const RunningStatistics& running) {
  for (const Tensor* t : {&running.batches, &running.mean, &running.var})
    if (t->defined()) t->storage()->bump_version();
}

}  // namespace

void check_batch_norm(const char* op, const Tensor& x,
                      std::initializer_list<std::pair<const char*, const Tensor*>> named) {
  if (x.dim() < 2 || x.dim() > 5)
    throw ShapeError(op, "x must be [N,C], [N,C,L] or [N,C,H,W]: x ", describe(x));
  check_floating(op, "x", x);
  for (const auto& [name, t] : named) {
    if (!t->defined()) continue;
    if (t->dim() != 1 || t->size(0) != x.size(1))
      throw ShapeError(op, name, " must have ", x.size(1), " elements: ", name, ' ', describe(*t), ", x ",
                       describe(x));
    if (t->dtype() != x.dtype() && t->dtype() != channel_dtype(x.dtype()))
      internal::throw_dtype_mismatch(op, "x", x, name, *t);
    if (!are_compatible_devices(t->device(), x.device()))
      throw DeviceError(op, name, " is on ", t->device(), " but x on ", x.device(), ": ", name, ' ',
                        describe(*t));
  }
}

BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           const RunningStatistics& running) {
  check_batch_norm("batch_norm", x, {{"weight", &weight}, {"bias", &bias}});
  const TensorOptions like{channel_dtype(x.dtype()), x.device()};
  BatchNormResult r{channels_innermost_like(x), empty({x.size(1)}, like), empty({x.size(1)}, like)};
  if (x.numel() > 0) {
    check_update("batch_norm", running, r.mean, x.dtype());
    batch_norm_kernel(r.y, r.mean, r.var, channels_innermost(x), by_channel_if_any(weight, x),
                      by_channel_if_any(bias, x), eps, running);
    count_update(running);
  } else {
    fill_(r.mean, 0), fill_(r.var, 0);
  }
  return r;
}

BatchNormResult batch_norm_relu(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                const Tensor& bias, const BatchNormReluOptions& options,
                                const RunningStatistics& running) {
  const char* op = "batch_norm_relu";
  check_batch_norm(op, x, {{"weight", &weight}, {"bias", &bias}});
  if (residual.defined()) check_like_x(op, "residual", residual, x);
  const Tensor other = residual.defined() ? channels_innermost(residual) : residual;
  const TensorOptions like{channel_dtype(x.dtype()), x.device()};
  BatchNormResult r{options.in_place && other.defined() ? other : channels_innermost_like(x),
                    empty({x.size(1)}, like), empty({x.size(1)}, like)};
  if (x.numel() > 0) {
    check_update(op, running, r.mean, x.dtype());
    batch_norm_relu_kernel(r.y, r.mean, r.var, channels_innermost(x), other, by_channel_if_any(weight, x),
                           by_channel_if_any(bias, x), options.eps, options.negative_slope, running);
    count_update(running);
  } else {
    fill_(r.mean, 0), fill_(r.var, 0);
  }
  return r;
}

Tensor batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                        const Tensor& bias, double eps) {
  check_batch_norm("batch_norm", x, {{"mean", &mean}, {"var", &var}, {"weight", &weight}, {"bias", &bias}});
  Tensor y = channels_innermost_like(x);
  if (x.numel() > 0)
    batch_norm_apply_kernel(y, channels_innermost(x), by_channel(mean, x), by_channel(var, x),
                            by_channel_if_any(weight, x), by_channel_if_any(bias, x), eps);
  return y;
}

BatchNormGrads batch_norm_backward(const Tensor& dy_in, const Tensor& x, const Tensor& mean,
                                   const Tensor& var, const Tensor& weight, const Tensor& bias,
                                   const BatchNormBackwardOptions& options) {
  const char* op = "batch_norm_backward";
  check_batch_norm(op, x, {{"mean", &mean}, {"var", &var}, {"weight", &weight}, {"bias", &bias}});
  check_like_x(op, "dy", dy_in, x);
  const TensorOptions like{channel_dtype(x.dtype()), x.device()};
  const Tensor dy = channels_innermost(dy_in);
  BatchNormGrads g{options.in_place ? dy : channels_innermost_like(x), empty({x.size(1)}, like),
                   empty({x.size(1)}, like)};
  if (x.numel() > 0) {
    batch_norm_backward_kernel(g.dx, g.dweight, g.dbias, dy, channels_innermost(x), by_channel(mean, x),
                               by_channel(var, x), by_channel_if_any(weight, x), by_channel_if_any(bias, x),
                               options.eps, options.negative_slope);
  } else {
    fill_(g.dweight, 0), fill_(g.dbias, 0);
  }
  return g;
}

BatchNormAddReluGrads batch_norm_add_relu_backward(const Tensor& dy_in, const Tensor& y_in, const Tensor& x,
                                                   const Tensor& mean, const Tensor& var,
                                                   const Tensor& weight,
                                                   const BatchNormAddReluBackwardOptions& options) {
  const char* op = "batch_norm_add_relu_backward";
  check_batch_norm(op, x, {{"mean", &mean}, {"var", &var}, {"weight", &weight}});
  check_like_x(op, "dy", dy_in, x);
  check_like_x(op, "y", y_in, x);
  const TensorOptions like{channel_dtype(x.dtype()), x.device()};
  const Tensor dy = channels_innermost(dy_in), y = channels_innermost(y_in);
  BatchNormAddReluGrads g{options.y_in_place ? y : channels_innermost_like(x),
                          options.dy_in_place ? dy : channels_innermost_like(x), empty({x.size(1)}, like),
                          empty({x.size(1)}, like)};
  if (x.numel() > 0) {
    batch_norm_add_relu_backward_kernel(g.dx, g.dresidual, g.dweight, g.dbias, dy, y, channels_innermost(x),
                                        by_channel(mean, x), by_channel(var, x), by_channel_if_any(weight, x),
                                        options.eps);
  } else {
    fill_(g.dweight, 0), fill_(g.dbias, 0);
  }
  return g;
}

BatchStatistics batch_statistics(const Tensor& x) {
  check_batch_norm("batch_statistics", x, {});
  const TensorOptions wide{DType::kF64, x.device()};
  BatchStatistics s{empty({x.size(1)}, wide), empty({x.size(1)}, wide)};
  if (x.numel() > 0)
    batch_statistics_kernel(s.mean, s.m2, channels_innermost(x));
  else
    fill_(s.mean, 0), fill_(s.m2, 0);
  return s;
}

Tensor batch_statistics_backward(const Tensor& add, const Tensor& x, const Tensor& mean, const Tensor& offset,
                                 const Tensor& slope, bool in_place) {
  check_batch_norm("batch_statistics_backward", x, {{"offset", &offset}, {"slope", &slope}});
  const DType wide = channel_dtype(x.dtype());
  const Tensor base = add.defined() ? channels_innermost(to(add, wide)) : add;
  Tensor dx = in_place && base.defined() && wide == x.dtype() ? base : channels_innermost_like(x);
  if (x.numel() > 0)
    batch_statistics_backward_kernel(dx, base, channels_innermost(x), by_channel(mean, x),
                                     by_channel(offset, x), by_channel(slope, x));
  return dx;
}

BatchNormApplyGrads batch_norm_apply_backward(const Tensor& dy, const Tensor& x, const Tensor& mean,
                                              const Tensor& var, const Tensor& weight, double eps) {
  check_batch_norm("batch_norm_apply_backward", x, {{"mean", &mean}, {"var", &var}, {"weight", &weight}});
  const TensorOptions like{channel_dtype(x.dtype()), x.device()};
  BatchNormApplyGrads g{channels_innermost_like(x, like.dtype), empty({x.size(1)}, like),
                        empty({x.size(1)}, like)};
  if (x.numel() > 0)
    batch_norm_apply_backward_kernel(g.dx, g.sum, g.centered_sum, channels_innermost(dy),
                                     channels_innermost(x), by_channel(mean, x), by_channel(var, x),
                                     by_channel_if_any(weight, x), eps);
  else
    fill_(g.sum, 0), fill_(g.centered_sum, 0);
  return g;
}

void batch_norm_update_(const RunningStatistics& running, const Tensor& mean, const Tensor& var,
                        int64_t rows) {
  constexpr const char* op = "batch_norm_update_";
  for (const auto& [name, t] :
       {std::pair("running mean", &running.mean), std::pair("running var", &running.var),
        std::pair("mean", &mean), std::pair("var", &var)})
    if (!t->defined()) throw StateError(op, name, " is undefined (none) where a tensor is needed");
  if (!(var.shape() == mean.shape()) || var.dtype() != mean.dtype())
    throw ShapeError(op, "var must be like mean: var ", describe(var), ", mean ", describe(mean));
  check_update(op, running, mean, running.mean.dtype());
  batch_norm_update_kernel(mean, var, running, rows);
  count_update(running);
}

}  // namespace gradus::raw
