#include "gradus/nn/batch_norm.h"

#include "gradus/autograd/ops/norm.h"
#include "gradus/nn/init.h"
#include "gradus/tensor/context.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/elementwise.h"

namespace gradus::nn {

Tensor BatchNorm::initial(bool wanted, double value) const {
  if (options().features < 1)
    throw ValueError("BatchNorm", "expected features >= 1, given ", *options().features);
  if (!wanted) return {};
  return init::constant_(empty({options().features}, {.device = Context::current().device}), value);
}

Tensor BatchNorm::initial_count() const {
  if (!options().track_running_stats) return {};
  Tensor count = empty({}, {DType::kI64, Context::current().device});
  raw::fill_(count, 0);
  return count;
}

void BatchNorm::reset_running_stats() {
  if (!running_mean.defined()) return;
  raw::fill_(running_mean, 0);
  raw::fill_(running_var, 1);
  raw::fill_(num_batches_tracked, 0);
}

// Counts the batch, and says how much it weighs.
double BatchNorm::next_momentum() {
  raw::add_(num_batches_tracked, scalar(1, {DType::kI64, num_batches_tracked.device()}));
  if (options().momentum) return *options().momentum;
  return 1 / num_batches_tracked.item<double>();
}

Tensor BatchNorm::forward(const Tensor& x) {
  check_input(x);
  const bool tracks = running_mean.defined();
  const bool by_batch = is_training() || !tracks;
  gradus::BatchNormOptions o;
  o.training = by_batch;
  o.eps = options().eps;
  if (by_batch && tracks) o.momentum = next_momentum();
  return batch_norm(x, weight, bias, running_mean, running_var, o);
}

std::string BatchNorm::extra_repr() const {
  const Options& o = options();
  std::string text = concat(*o.features);
  if (o.eps != 1e-5) text += concat(", eps=", o.eps);
  if (!o.momentum)
    text += ", momentum=none";
  else if (*o.momentum != 0.1)
    text += concat(", momentum=", *o.momentum);
  if (!o.affine) text += ", affine=false";
  if (!o.track_running_stats) text += ", track_running_stats=false";
  return text;
}

void BatchNorm1d::check_input(const Tensor& x) const {
  if ((x.dim() != 2 && x.dim() != 3) || x.size(1) != options().features)
    throw ShapeError("BatchNorm1d", "expected x [N,", *options().features, "] or [N,", *options().features,
                     ",L], given ", describe(x));
}

void BatchNorm2d::check_input(const Tensor& x) const {
  if (x.dim() != 4 || x.size(1) != options().features)
    throw ShapeError("BatchNorm2d", "expected x [N,", *options().features, ",H,W], given ", describe(x));
}

}  // namespace gradus::nn
