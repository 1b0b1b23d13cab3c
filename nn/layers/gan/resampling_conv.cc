// UpConv2d and DownConv2d: convolutions with stride 2 and a 4x4 filter that combines a 3x3 filter with a 2x2 box.
#include "gradus/nn/layers/gan/resampling_conv.h"

#include <cmath>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/images/conv.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::nn {
namespace {

Tensor uniform(const Shape& shape, int64_t fan) {
  const double bound = 1 / std::sqrt(double(fan));
  return init::uniform_(empty(shape, {.device = internal::initial_device()}), {.low = -bound, .high = bound});
}
template <class O> int64_t checked_fan(const char* layer, const O& o) {
  if (o.in < 1 || o.out < 1) throw ValueError(layer, "expected in, out >= 1, got ", *o.in, " and ", *o.out);
  return 9 * o.in;
}

// Returns the 4x4 filters that are the convolution of the 3x3 filters w with a 2x2 box of ones: the sum of w at
// its four offsets. Computed as one matrix product, because each of the 16 weights is a sum of some of the 9.
Tensor convolve_with_box(const Tensor& w) {
  static const std::vector<float> sum_matrix = [] {
    std::vector<float> all(9 * 16);
    for (size_t y = 0; y < 3; ++y)
      for (size_t x = 0; x < 3; ++x)
        for (size_t down : {0, 1})
          for (size_t right : {0, 1}) all[(3 * y + x) * 16 + 4 * (y + down) + x + right] = 1;
    return all;
  }();
  auto in_its_dtype = autocast(DType::kBF16, {.enabled = false});
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
template class ModuleWith<DownConv2dOptions, Layer>;
}  // namespace gradus::nn
