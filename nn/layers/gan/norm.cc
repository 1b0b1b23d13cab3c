// PixelNorm: y = x / root mean square over the channels. AdaptiveInstanceNorm: instance norm with scale and
// shift from a style vector. MinibatchStdDev: appends a group's mean standard deviation as channels to
// [N, C, H, W], over one batch or, in training with a reduction, over the batches of all ranks (an
// all-gather, so all ranks call together).
#include "gradus/nn/layers/gan/norm.h"

#include <algorithm>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/norm/group_norm.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/reparametrize.h"

namespace gradus::nn {

Tensor PixelNorm::forward(const Tensor& x) {
  if (x.dim() < 2) throw ShapeError("PixelNorm", "expected x [N,C] or [N,C,...], got ", describe(x));
  // Computes in f32, because eps would be 0 in f16.
  const Tensor wide = x.dtype() == DType::kF64 ? x : gradus::to(x, DType::kF32);
  const Tensor squares = mean(square(wide), 1, true);
  const double eps = options().eps;
  if (options().eps_outside) return x * gradus::to(1 / (sqrt(squares) + eps), x.dtype());
  return x * gradus::to(rsqrt(squares + eps), x.dtype());
}

template class ModuleWith<PixelNormOptions, Layer>;

AdaptiveInstanceNorm::AdaptiveInstanceNorm(Module* parent, std::string name, Options options)
    : ModuleWith(parent, std::move(name), options) {
  initialize();
}
AdaptiveInstanceNorm::AdaptiveInstanceNorm(Options options) : ModuleWith(options) { initialize(); }

void AdaptiveInstanceNorm::initialize() {
  equalized_lr(affine, {.gain = options().gain});
  if (!options().add_one) init::constant_(narrow(affine.bias, 0, 0, options().channels), 1);
}

Tensor AdaptiveInstanceNorm::forward(const Tensor& x, const Tensor& w) {
  const int64_t C = options().channels;
  if (x.dim() != 4 || x.size(1) != C || w.dim() != 2 || w.size(0) != x.size(0))
    throw ShapeError("AdaptiveInstanceNorm", "expected x [N,", C, ",H,W] and w [N,", *options().style,
                     "], got ", describe(x), " and ", describe(w));
  const Tensor style = reshape(affine(w), {x.size(0), 2, C, 1, 1});
  const Tensor s0 = select(style, 1, 0);
  return instance_norm(x, {}, {}, {}, {}, {.eps = options().eps}) * (options().add_one ? s0 + 1 : s0) +
         select(style, 1, 1);
}

template class ModuleWith<AdaptiveInstanceNormOptions>;

// Returns the average standard deviation per sample and channel group of a batch [N,C,H,W]:
// [N,channel_groups,1,1]. Sample i belongs to group i % (N / group).
Tensor MinibatchStdDev::group_stddev(const Tensor& batch) const {
  const Options& o = options();
  const int64_t n = batch.size(0), group = std::clamp<int64_t>(n, 1, o.group_size);
  if (n % group != 0 || batch.size(1) % o.channel_groups != 0)
    throw ShapeError("MinibatchStdDev", "expected x [N,C,H,W] with N at most or a multiple of ", o.group_size,
                     " and C a multiple of ", o.channel_groups, ", got ", describe(batch));
  const int64_t C = batch.size(1), H = batch.size(2), W = batch.size(3), groups = n / group;
  // Computes in f32, because eps would be 0 in f16.
  const Tensor wide = batch.dtype() == DType::kF64 ? batch : gradus::to(batch, DType::kF32);
  const Tensor y = reshape(wide, {group, groups, o.channel_groups, C / o.channel_groups * H * W});
  // Shape [groups,channel_groups,C/channel_groups*H*W].
  const Tensor deviation = sqrt(mean(square(y - mean(y, 0, true)), 0) + o.eps);
  const Tensor one =
      reshape(gradus::to(mean(deviation, -1), batch.dtype()), {1, groups, o.channel_groups, 1});
  return reshape(expand(one, {group, groups, o.channel_groups, 1}), {n, o.channel_groups, 1, 1});
}

Tensor MinibatchStdDev::forward(const Tensor& x) {
  const Options& o = options();
  if (o.group_size < 1 || o.channel_groups < 1)
    throw ValueError("MinibatchStdDev", "expected group_size, channel_groups >= 1, got ", o.group_size,
                     " and ", o.channel_groups);
  if (x.dim() != 4) throw ShapeError("MinibatchStdDev", "expected x [N,C,H,W], got ", describe(x));
  const int64_t n = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  Tensor appended;
  const bool has_data = x.device().type != DeviceType::kMeta;  // meta tensors have no elements to exchange
  if (is_training() && reduction_ && reduction_->size() > 1 && has_data) {
    const int64_t ranks = reduction_->size();
    const Tensor of_ranks = reshape(reduction_->all_gather(reshape(x, {x.numel()})), {ranks, n, C, H, W});
    const Tensor joined = group_stddev(reshape(transpose(of_ranks, 0, 1), {n * ranks, C, H, W}));
    appended = select(reshape(joined, {n, ranks, o.channel_groups, 1, 1}), 1, reduction_->rank());
  } else {
    appended = group_stddev(x);
  }
  return cat({x, expand(appended, {n, o.channel_groups, H, W})}, 1);
}

template class ModuleWith<MinibatchStdDevOptions, Layer>;

}  // namespace gradus::nn
