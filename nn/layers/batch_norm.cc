#include "gradus/nn/layers/batch_norm.h"

#include <algorithm>

#include "gradus/autograd/graph/recomputing.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/norm/batch_norm.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::nn {

Tensor BatchNorm::initial(bool wanted, double value) const {
  if (options().features < 1)
    throw ValueError("BatchNorm", "expected features >= 1, given ", *options().features);
  if (!wanted) return {};
  return init::constant_(empty({options().features}, {.device = internal::initial_device()}), value);
}

Tensor BatchNorm::initial_count() const {
  if (!options().track_running_stats) return {};
  Tensor count = empty({}, {DType::kI64, internal::initial_device()});
  raw::fill_(count, 0);
  return count;
}

void BatchNorm::reset_running_stats() {
  if (!running_mean.defined()) return;
  raw::fill_(running_mean, 0);
  raw::fill_(running_var, 1);
  raw::fill_(num_batches_tracked, 0);
}

namespace {
// False when a checkpoint computes its function again: the first run has counted the batch.
bool counts_batches() { return !autograd::is_recomputing(); }
}  // namespace

// Counts the batch, and returns its weight in the running statistics.
double BatchNorm::next_momentum() {
  raw::add_(num_batches_tracked, scalar(1, {DType::kI64, num_batches_tracked.device()}));
  if (options().momentum && !all_alike_) return *options().momentum;
  return 1 / num_batches_tracked.item<double>();
}

bool BatchNorm::joins_batches() const {
  return (is_training() || !running_mean.defined()) && reduction_ && reduction_->size() > 1;
}

// Returns op(x, weight, bias, running_mean, running_var, options). op is batch_norm or an op
// that contains it.
template <class Op> Tensor BatchNorm::forward_by(Op op, const Tensor& x) {
  check_input(x);
  const bool tracks = running_mean.defined();
  const bool by_batch = is_training() || !tracks;
  gradus::BatchNormFuncOptions o;
  o.training = by_batch;
  o.eps = options().eps;
  const bool counts = by_batch && tracks && counts_batches();
  if (counts) o.momentum = next_momentum();
  const Tensor none;
  const bool given = counts || !by_batch;
  return op(x, weight, bias, given ? running_mean : none, given ? running_var : none, o);
}

Tensor BatchNorm::forward(const Tensor& x) {
  return joins_batches() ? forward_joined(x) : forward_by(batch_norm, x);
}

Tensor BatchNorm::relu(const Tensor& x) {
  if (has_hooks() || joins_batches()) return gradus::relu((*this)(x));
  return call([&] { return forward_by(batch_norm_relu, x); });
}

Tensor BatchNorm::add_relu(const Tensor& x, Tensor residual) {
  if (has_hooks() || joins_batches()) return gradus::relu((*this)(x) + residual);
  return call([&] {
    const auto op = [&](const Tensor& in, const auto&... args) {
      return batch_norm_add_relu(in, std::move(residual), args...);
    };
    return forward_by(op, x);
  });
}

// Normalizes by the statistics of all batches that share the reduction, joined as in Chan, Golub and LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979. They are exact also
// where the mean is large.
Tensor BatchNorm::forward_joined(const Tensor& x) {
  check_input(x);
  const int64_t C = *options().features;
  const BatchStatistics mine = batch_statistics(x);
  const Tensor count = empty({1}, {DType::kF64, x.device()});
  raw::fill_(count, double(C > 0 ? x.numel() / C : 0));
  const Tensor all = reduction_->all_gather(cat({count, mine.mean, mine.m2}, 0));  // f64[size, 1 + 2 C]
  const Tensor counts = detach(narrow(all, 1, 0, 1)), means = narrow(all, 1, 1, C),
               m2s = narrow(all, 1, 1 + C, C);
  const double rows = sum(counts).item<double>(), divisor = std::max(rows, 1.0);
  if (rows == 1)
    throw ValueError(type_name().c_str(),
                     "training needs more than one element per channel on all ranks together: x ",
                     describe(x));
  const DType wide = raw::channel_dtype(x.dtype());
  const Tensor exact_mean = sum(counts * means, {0}, false) / divisor;
  const Tensor mean = gradus::to(exact_mean, wide);
  const Tensor var = gradus::to(sum(m2s + counts * square(means - exact_mean), {0}, false) / divisor, wide);
  if (running_mean.defined() && counts_batches()) {
    const double momentum = next_momentum();
    if (rows > 0)
      raw::batch_norm_update_(running_mean, running_var, detach(mean), detach(var), int64_t(rows), momentum);
  }
  return batch_norm_by(mine.x, mean, var, weight, bias, options().eps);
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

void BatchNorm3d::check_input(const Tensor& x) const {
  if (x.dim() != 5 || x.size(1) != options().features)
    throw ShapeError("BatchNorm3d", "expected x [N,", *options().features, ",D,H,W], given ", describe(x));
}

template class ModuleWith<BatchNormOptions, Layer>;
}  // namespace gradus::nn
