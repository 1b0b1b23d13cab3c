// fir_filter2d: a transposed convolution inserts the zeros, and a depthwise convolution with stride `down`
// filters and downsamples. UpConv2d and DownConv2d: convolutions with stride 2 and a 4x4 filter, the
// convolution of the 3x3 weight with a 2x2 box.
#include "gradus/nn/layers/gan/resampling_conv.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/arrange.h"
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

Tensor fir_filter(const std::vector<double>& taps) {
  const double sum = std::accumulate(taps.begin(), taps.end(), 0.0);
  if (taps.empty() || sum == 0 || !std::isfinite(sum))
    throw ValueError("fir_filter", "expected taps whose sum is not 0, got ", taps.size(), " taps of sum ",
                     sum);
  std::vector<double> product;
  for (double a : taps)
    for (double b : taps) product.push_back(a * b / (sum * sum));
  const int64_t K = int64_t(taps.size());
  return tensor(product, {K, K});
}

Tensor fir_filter2d(const Tensor& x, const Tensor& filter, const FirFilter2dFuncOptions& o) {
  if (x.dim() != 4 || filter.dim() != 2 || filter.size(0) != filter.size(1) || o.padding.size() != 2)
    throw ShapeError("fir_filter2d", "expected x [N,C,H,W], a filter [K,K] and two paddings, got ",
                     describe(x), ", ", describe(filter), " and ", o.padding);
  const int64_t C = x.size(1), K = filter.size(0), before = o.padding[0], after = o.padding[1];
  Tensor y = x;
  if (o.up > 1) {
    // A transposed convolution with a 1x1 filter inserts up - 1 zeros after each pixel, including the last.
    const Tensor tap = ones({C, 1, 1, 1}, {x.dtype(), x.device()});
    y = conv_transpose2d(x, tap, {}, {.stride = o.up, .output_padding = o.up - 1, .groups = C});
  }
  const bool symmetric = before == after && before >= 0;
  if (!symmetric) y = pad(y, {before, after, before, after});
  // conv2d cross-correlates, so the filter is rotated by 180 degrees.
  const Tensor rotated = gradus::to(gradus::to(flip(detach(filter), {0, 1}) * o.gain, x.dtype()), x.device());
  const Tensor w = contiguous(expand(reshape(rotated, {1, 1, K, K}), {C, 1, K, K}));
  return conv2d(y, w, {}, {.stride = o.down, .padding = symmetric ? before : 0, .groups = C});
}

Tensor FirFilter2d::forward(const Tensor& x) {
  if (x.dim() != 4) throw ShapeError("FirFilter2d", "expected x [N,C,H,W], got ", describe(x));
  const Options& o = options();
  if (o.up < 1 || o.down < 1 || o.padding.size() != 2)
    throw ValueError("FirFilter2d", "expected up and down >= 1 and two paddings, got up ", o.up, ", down ",
                     o.down, ", padding ", o.padding);
  return fir_filter2d(x, fir_filter(o.taps),
                      {.up = o.up, .down = o.down, .padding = o.padding, .gain = o.gain});
}

template class ModuleWith<FirFilter2dOptions, Layer>;

Tensor resampled_conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& filter,
                        const ResampledConv2dFuncOptions& o) {
  if (o.up < 1 || o.down < 1 || (o.up > 1 && o.down > 1))
    throw ValueError("resampled_conv2d", "expected up or down to be 1, and none below 1, got up ", o.up,
                     " and down ", o.down);
  if (w.dim() != 4 || w.size(2) != w.size(3) || w.size(2) % 2 == 0)
    throw ShapeError("resampled_conv2d", "expected w [O,I,K,K] with an odd K, got ", describe(w));
  const int64_t K = w.size(2), half = K / 2;
  if (o.up == 1 && o.down == 1) return conv2d(x, w, bias, {.padding = half, .groups = o.groups});
  if (filter.dim() != 2)
    throw ShapeError("resampled_conv2d", "expected a filter [F,F], got ", describe(filter));
  const int64_t F = filter.size(0);
  if (o.down > 1) {
    const Shape padding = {half + (F - o.down + 1) / 2, half + (F - o.down) / 2};
    // A 1x1 convolution computes the pixels that downsampling keeps, and no others.
    const int64_t filter_down = K == 1 ? o.down : 1;
    return conv2d(fir_filter2d(x, filter, {.down = filter_down, .padding = padding}), w, bias,
                  {.stride = o.down / filter_down, .groups = o.groups});
  }
  // The weight of a transposed convolution is [C,O/groups,K,K].
  const int64_t outputs = w.size(0) / o.groups, inputs = w.size(1);
  const Tensor split = reshape(w, {o.groups, outputs, inputs, K, K});
  const Tensor transposed = reshape(transpose(split, 1, 2), {o.groups * inputs, outputs, K, K});
  const Tensor y = conv_transpose2d(x, transposed, {}, {.stride = o.up, .groups = o.groups});
  const Tensor z =
      fir_filter2d(y, filter,
                   {.padding = {half + (F + o.up - 1) / 2 - (K - 1), half + (F - o.up) / 2 - (K - o.up)},
                    .gain = double(o.up * o.up)});
  return bias.defined() ? z + reshape(gradus::to(bias, z.dtype()), {1, -1, 1, 1}) : z;
}

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
