// FirFilter2d: a depthwise convolution with fixed filters.
#include "gradus/nn/layers/gan/fir.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/images/conv.h"
#include "gradus/autograd/ops/images/pad.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {

// Returns the filters [C,1,K,K] for the channels, dtype and device of `like`.
Tensor FirFilter2d::filter(const Tensor& like) const {
  const Options& o = options();
  const double sum = std::accumulate(o.taps.begin(), o.taps.end(), 0.0);
  if (o.taps.empty() || sum == 0 || !std::isfinite(sum) || o.up < 1 || o.down < 1 || o.padding.size() != 2)
    throw ValueError(
        "FirFilter2d", "expected taps whose sum is not 0, up and down >= 1 and two paddings, got ",
        o.taps.size(), " taps of sum ", sum, ", up ", o.up, ", down ", o.down, ", padding ", o.padding);
  const int64_t K = int64_t(o.taps.size());
  std::vector<double> product;
  // conv2d cross-correlates, so the filter is rotated by 180 degrees.
  for (int64_t i = K; i-- > 0;)
    for (int64_t j = K; j-- > 0;)
      product.push_back(o.gain * o.taps[size_t(i)] * o.taps[size_t(j)] / (sum * sum));
  const Tensor one = gradus::to(gradus::to(tensor(product, {1, 1, K, K}), like.dtype()), like.device());
  return contiguous(expand(one, {like.size(1), 1, K, K}));
}

Tensor FirFilter2d::forward(const Tensor& x) {
  if (x.dim() != 4) throw ShapeError("FirFilter2d", "expected x [N,C,H,W], got ", describe(x));
  const Options& o = options();
  const Tensor w = filter(x);
  const int64_t C = x.size(1), before = o.padding[0], behind = o.padding[1];
  Tensor y = x;
  if (o.up > 1) {
    // A transposed convolution with a 1x1 filter inserts up - 1 zeros after each pixel, including the last.
    const Tensor tap = ones({C, 1, 1, 1}, {x.dtype(), x.device()});
    y = conv_transpose2d(x, tap, {}, {.stride = o.up, .output_padding = o.up - 1, .groups = C});
  }
  y = pad(y, {before, behind, before, behind});
  return conv2d(y, w, {}, {.stride = o.down, .groups = C});
}

template class ModuleWith<FirFilter2dOptions, Layer>;
}  // namespace gradus::nn
