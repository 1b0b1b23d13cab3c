// Batch norm layers: choose the statistics (batch or running), keep the running statistics, and call the ops
// batch_norm and batch_norm_relu etc. (fused with an activation). Deferred statistics are accumulated over
// batches and applied once. With a StatisticsReduction the statistics are those of the batches of all ranks
// (SyncBatchNorm); then forward is collective over the ranks. x is [N, features, spatial dims...].
#include "gradus/nn/layers/batch_norm.h"

#include <algorithm>

#include "gradus/autograd/graph/tracking.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/norm/batch_norm.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/layers/activations.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {

// Returns [features] filled with `value`; undefined unless `enabled`.
Tensor BatchNorm::initial(bool enabled, double value) {
  if (options().freeze && !options().track_running_stats)
    throw ValueError("BatchNorm",
                     "freeze uses running statistics: expected track_running_stats true, got false");
  if (options().features == kLazy) return uninitialized();
  if (options().features < 1)
    throw ValueError("BatchNorm", "expected features >= 1, got ", *options().features);
  if (!enabled) return {};
  return init::constant_(empty({options().features}, {.device = internal::initial_device()}), value);
}

Tensor BatchNorm::initial_count() const {
  return options().track_running_stats ? zeros({}, {DType::kI64, internal::initial_device()}) : Tensor();
}

void BatchNorm::reset_running_stats() {
  if (!running_mean.defined()) return;
  raw::fill_(running_mean, 0);
  raw::fill_(running_var, 1);
  raw::fill_(num_batches_tracked, 0);
}

namespace {
// Returns whether a forward updates running statistics: all do but the second run of a checkpoint.
bool updates_statistics() { return !autograd::is_recomputing(); }
bool has_data(const Tensor& x) { return x.device().type != DeviceType::kMeta; }
}  // namespace

// Returns the next batch's weight in the running statistics: momentum, or 1 / (batches + 1) if cumulative.
double BatchNorm::next_momentum() const {
  if (options().momentum && !use_cumulative_average_) return *options().momentum;
  return has_data(num_batches_tracked) ? 1 / (num_batches_tracked.item<double>() + 1) : 1;
}

void BatchNorm::defer_statistics(bool on) { deferred_ = on ? std::optional(DeferredStats()) : std::nullopt; }

// Combines a batch's statistics with the accumulated ones (Chan, Golub and LeVeque, see
// forward_synchronized). m2: sum of squared differences from the mean; rows: number of elements per channel.
void BatchNorm::accumulate(const Tensor& batch_mean, const Tensor& batch_m2, int64_t batch_rows) {
  const double rows = double(batch_rows), all = deferred_->rows + rows;
  if (rows == 0) return;
  const Tensor mean = gradus::to(batch_mean, DType::kF64), m2 = gradus::to(batch_m2, DType::kF64);
  if (deferred_->rows == 0) {
    *deferred_ = {rows, mean, m2};
    return;
  }
  const Tensor delta = mean - deferred_->mean;
  const Tensor between = square(delta) * (deferred_->rows * rows / all);
  *deferred_ = {all, deferred_->mean + delta * (rows / all), deferred_->m2 + m2 + between};
}

void BatchNorm::apply_deferred_statistics() {
  if (!deferred_ || deferred_->rows == 0) return;
  const DeferredStats all = std::exchange(*deferred_, {});
  const DType wide = raw::channel_dtype(running_mean.dtype());
  raw::batch_norm_update_({running_mean, running_var, num_batches_tracked, next_momentum()},
                          gradus::to(all.mean, wide), gradus::to(all.m2 / all.rows, wide), int64_t(all.rows));
}

bool BatchNorm::reduces_statistics() const {
  return uses_batch_statistics() && reduction_ && reduction_->size() > 1;
}

// Returns op(x, weight, bias, running_mean, running_var, options), where op is batch_norm or batch norm fused
// with an activation. Undefined running statistics: op neither reads nor updates any.
template <class Op> Tensor BatchNorm::forward_op(Op op, const Tensor& x) {
  check_input(x);
  const bool tracks = running_mean.defined();
  const bool by_batch = uses_batch_statistics();
  gradus::BatchNormFuncOptions o;
  o.training = by_batch;
  o.eps = options().eps;
  // Whether this batch changes the running statistics.
  const bool counts = by_batch && tracks && updates_statistics();
  if (counts && deferred_ && has_data(x)) {
    // With a momentum of 1 the op writes the batch's mean and unbiased variance into these tensors.
    const Tensor mean = zeros({*options().features}, {raw::channel_dtype(x.dtype()), x.device()});
    const Tensor var = zeros_like(mean);
    o.momentum = 1;
    const Tensor y = op(x, weight, bias, mean, var, o);
    const int64_t rows = x.numel() / std::max<int64_t>(*options().features, 1);
    accumulate(mean, var * double(rows - 1), rows);
    return y;
  }
  if (counts) o.momentum = next_momentum(), o.num_batches_tracked = num_batches_tracked;
  const Tensor none;
  const bool given = counts || !by_batch;
  return op(x, weight, bias, given ? running_mean : none, given ? running_var : none, o);
}

Tensor BatchNorm::forward(const Tensor& x) {
  check_input(x);
  // On the meta device there are no statistics to exchange.
  return reduces_statistics() && has_data(x) ? forward_synchronized(x) : forward_op(batch_norm, x);
}

Tensor BatchNorm::relu(const Tensor& x) {
  if (has_hooks() || reduces_statistics()) return gradus::relu((*this)(x));
  return call([&] { return forward_op(batch_norm_relu, x); });
}

Tensor BatchNorm::leaky_relu(const Tensor& x, double slope) {
  if (has_hooks() || reduces_statistics()) return gradus::leaky_relu((*this)(x), slope);
  return call([&] {
    const auto op = [&](const Tensor& in, const auto&... args) {
      return batch_norm_leaky_relu(in, slope, args...);
    };
    return forward_op(op, x);
  });
}

std::optional<Tensor> BatchNorm::fuse_next(const Layer& next, const Tensor& x) {
  if (next.has_hooks()) return {};
  if (dynamic_cast<const ReLU*>(&next)) return relu(x);
  if (const auto* leaky = dynamic_cast<const LeakyReLU*>(&next))
    return leaky_relu(x, leaky->options().negative_slope);
  return {};
}

Tensor BatchNorm::add_relu(const Tensor& x, Tensor residual) {
  if (has_hooks() || reduces_statistics()) return gradus::relu((*this)(x) + residual);
  return call([&] {
    const auto op = [&](const Tensor& in, const auto&... args) {
      return batch_norm_add_relu(in, std::move(residual), args...);
    };
    return forward_op(op, x);
  });
}

// Normalizes by the combined statistics of the batches of all ranks of the reduction. Means and sums of
// squared differences are combined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm
// for computing sample variances", 1979, which avoids cancellation for large means.
Tensor BatchNorm::forward_synchronized(const Tensor& x) {
  const int64_t C = *options().features;
  const BatchStatistics local = batch_statistics(x);
  const int64_t local_rows = C > 0 ? x.numel() / C : 0;
  const Tensor count = full({1}, double(local_rows), {DType::kF64, x.device()});
  const Tensor all = reduction_->all_gather(cat({count, local.mean, local.m2}, 0));  // f64[size, 1 + 2 C]
  const Tensor counts = detach(narrow(all, 1, 0, 1)), means = narrow(all, 1, 1, C),
               m2s = narrow(all, 1, 1 + C, C);
  // The host does not wait for a GPU.
  const double rows = x.device().type == DeviceType::kCUDA ? double(reduction_->sum(local_rows))
                                                           : sum(counts).item<double>(),
               divisor = std::max(rows, 1.0);
  if (rows == 1)
    throw ValueError(type_name().c_str(),
                     "training needs more than one element per channel on all ranks together: x ",
                     describe(x));
  const DType wide = raw::channel_dtype(x.dtype());
  const Tensor exact_mean = sum(counts * means, {0}, false) / divisor;
  const Tensor mean = gradus::to(exact_mean, wide);
  const Tensor var = gradus::to(sum(m2s + counts * square(means - exact_mean), {0}, false) / divisor, wide);
  if (running_mean.defined() && updates_statistics()) {
    if (deferred_) {
      accumulate(detach(mean), detach(var) * rows, int64_t(rows));
    } else {
      const double momentum = next_momentum();
      if (rows > 0)
        raw::batch_norm_update_({running_mean, running_var, num_batches_tracked, momentum}, detach(mean),
                                detach(var), int64_t(rows));
      else
        raw::add_(num_batches_tracked, 1);
    }
  }
  return batch_norm_by(local.x, mean, var, weight, bias, options().eps);
}

// Throws ShapeError unless x has a shape that the layer takes. Creates the parameters and buffers of a layer with
// features = kLazy in its first call.
void BatchNorm::check_input(const Tensor& x) {
  const int rank = spatial_dims();
  const bool fits = x.dim() == rank + 2 || (rank == 1 && x.dim() == 2);
  if (fits && !has_sizes()) {
    mutable_options().features = x.size(1);
    initialize(weight, initial(options().affine, 1));
    initialize(bias, initial(options().affine, 0));
    initialize(running_mean, initial(options().track_running_stats, 0));
    initialize(running_var, initial(options().track_running_stats, 1));
    set_initialized();
  }
  if (fits && x.size(1) == options().features) return;
  const std::string features = internal::value_text(options().features);
  if (rank == 1)
    throw ShapeError(type_name(), "expected x [N,", features, "] or [N,", features, ",L], got ", describe(x));
  throw ShapeError(type_name(), "expected x [N,", features, rank == 2 ? ",H,W], got " : ",D,H,W], got ",
                   describe(x));
}

template class ModuleWith<BatchNormOptions, Layer>;

}  // namespace gradus::nn
