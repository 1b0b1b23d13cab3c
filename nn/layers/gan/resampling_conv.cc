// FirFilter2d: a transposed convolution inserts the zeros, and a depthwise convolution with stride `down`
// filters and downsamples. UpConv2d and DownConv2d: convolutions with stride 2 and a 4x4 filter, the
// convolution of the 3x3 weight with a 2x2 box.
#include "gradus/nn/layers/gan/resampling_conv.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/images/conv.h"
#include "gradus/autograd/ops/images/pad.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {

// Returns the outer product of the taps, times gain / sum^2, as filters [C,1,K,K] for the C channels, the
// dtype and the device of `like`.
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
  const Tensor kernel = gradus::to(gradus::to(tensor(product, {1, 1, K, K}), like.dtype()), like.device());
  return contiguous(expand(kernel, {like.size(1), 1, K, K}));
}

Tensor FirFilter2d::forward(const Tensor& x) {
  if (x.dim() != 4) throw ShapeError("FirFilter2d", "expected x [N,C,H,W], got ", describe(x));
  const Options& o = options();
  const Tensor w = filter(x);
  const int64_t C = x.size(1), before = o.padding[0], after = o.padding[1];
  Tensor y = x;
  if (o.up > 1) {
    // A transposed convolution with a 1x1 filter inserts up - 1 zeros after each pixel, including the last.
    const Tensor tap = ones({C, 1, 1, 1}, {x.dtype(), x.device()});
    y = conv_transpose2d(x, tap, {}, {.stride = o.up, .output_padding = o.up - 1, .groups = C});
  }
  y = pad(y, {before, after, before, after});
  return conv2d(y, w, {}, {.stride = o.down, .groups = C});
}

template class ModuleWith<FirFilter2dOptions, Layer>;

namespace {

// Returns initial values, uniform on +-1/sqrt(fan).
Tensor uniform(const Shape& shape, int64_t fan) {
  const double bound = 1 / std::sqrt(double(fan));
  return init::uniform_(empty(shape, {.device = internal::initial_device()}), {.low = -bound, .high = bound});
}
// Returns 9 in, the fan of the initial values, after checking the options.
template <class O> int64_t checked_fan(const char* layer, const O& o) {
  if (o.in < 1 || o.out < 1) throw ValueError(layer, "expected in, out >= 1, got ", *o.in, " and ", *o.out);
  return 9 * o.in;
}

// Returns w [A,B,3,3] convolved with a 2x2 box of ones, [A,B,4,4]: the sum of w at its four offsets. Computed
// as a product with a constant matrix [9,16] of zeros and ones, in w's dtype even under autocast.
Tensor convolve_with_box(const Tensor& w) {
  static const std::vector<float> sum_matrix = [] {
    std::vector<float> matrix(9 * 16);
    for (size_t y = 0; y < 3; ++y)
      for (size_t x = 0; x < 3; ++x)
        for (size_t down : {0, 1})
          for (size_t right : {0, 1}) matrix[(3 * y + x) * 16 + 4 * (y + down) + x + right] = 1;
    return matrix;
  }();
  auto no_casts = autocast(DType::kBF16, {.enabled = false});
  const Tensor sums = raw::to(tensor(sum_matrix, {9, 16}, w.device()), w.dtype());
  return reshape(matmul(reshape(w, {w.size(0) * w.size(1), 9}), sums), {w.size(0), w.size(1), 4, 4});
}

}  // namespace

Tensor UpConv2d::initial_weight() const {
  const int64_t fan = checked_fan("UpConv2d", options());
  return uniform({options().in, options().out, 3, 3}, fan);
}
Tensor UpConv2d::initial_bias() const {
  return options().bias ? uniform({options().out}, 9 * options().in) : Tensor();
}
Tensor UpConv2d::forward(const Tensor& x) {
  return conv_transpose2d(x, convolve_with_box(weight), bias, {.stride = 2, .padding = 1});
}

Tensor DownConv2d::initial_weight() const {
  const int64_t fan = checked_fan("DownConv2d", options());
  return uniform({options().out, options().in, 3, 3}, fan);
}
Tensor DownConv2d::initial_bias() const {
  return options().bias ? uniform({options().out}, 9 * options().in) : Tensor();
}
Tensor DownConv2d::forward(const Tensor& x) {
  return conv2d(x, convolve_with_box(weight) * 0.25, bias, {.stride = 2, .padding = 1});
}

template class ModuleWith<UpConv2dOptions, Layer>;

}  // namespace gradus::nn
