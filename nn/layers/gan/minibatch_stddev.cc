#include "gradus/nn/layers/gan/minibatch_stddev.h"

#include <algorithm>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"

namespace gradus::nn {

Tensor MinibatchStdDev::forward(const Tensor& x) {
  const Options& o = options();
  if (o.group_size < 1 || o.channel_groups < 1)
    throw ValueError("MinibatchStdDev", "expected group_size, channel_groups >= 1, given ", o.group_size,
                     " and ", o.channel_groups);
  const int64_t n = x.dim() == 4 ? x.size(0) : 0, group = std::clamp<int64_t>(n, 1, o.group_size);
  if (x.dim() != 4 || n % group != 0 || x.size(1) % o.channel_groups != 0)
    throw ShapeError("MinibatchStdDev", "expected x [N,C,H,W] with N at most or a multiple of ", o.group_size,
                     " and C a multiple of ", o.channel_groups, ", given ", describe(x));
  const int64_t C = x.size(1), H = x.size(2), W = x.size(3), groups = n / group;
  // In f32, because eps would be 0 in f16.
  const Tensor wide = x.dtype() == DType::kF64 ? x : gradus::to(x, DType::kF32);
  const Tensor y = reshape(wide, {group, groups, o.channel_groups, C / o.channel_groups * H * W});
  // [groups,channel_groups,...].
  const Tensor deviation = sqrt(mean(square(y - mean(y, 0, true)), 0) + o.eps);
  const Tensor one = reshape(gradus::to(mean(deviation, -1), x.dtype()), {1, groups, o.channel_groups, 1, 1});
  return cat({x, reshape(expand(one, {group, groups, o.channel_groups, H, W}), {n, o.channel_groups, H, W})},
             1);
}

template class ModuleWith<MinibatchStdDevOptions, Layer>;
}  // namespace gradus::nn
