// Convolution and transposed convolution layers in 1 to 3 dims: PyTorch's initial parameters (Kaiming
// uniform), padding other than zeros (an index_select per dim, before the convolution without padding), and
// the call of the op conv1d, ..., conv_transpose3d, which checks x and computes gradients. The layers have
// one template, Conv<O, N>: O is the type of the options, N the name of the class.
#include "gradus/nn/layers/conv.h"

#include <algorithm>
#include <cmath>
#include <concepts>

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/images/conv.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/nn/init.h"
#include "gradus/nn/layers/activations.h"
#include "gradus/nn/placement.h"

namespace gradus::nn {
namespace {

// Returns sizes of 1, 2 or 3 spatial dims as a Shape.
Shape sizes(int64_t n) { return {n}; }
Shape sizes(Size2 s) { return {s.h, s.w}; }
Shape sizes(Size3 s) { return {s.d, s.h, s.w}; }

// Whether O are the options of a transposed convolution.
template <class O> constexpr bool kTransposed = requires(O o) { o.output_padding; };

// Returns the index in [0, n) of the element that padding copies to position i, in or outside of [0, n).
int64_t source_index(int64_t i, int64_t n, PaddingMode mode) {
  if (mode == PaddingMode::kReplicate) return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == PaddingMode::kCircular) return (i + n) % n;
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

// Returns x [..., spatial dims] padded by the layer's padding mode, other than zeros. With same_padding and
// an odd total, the end gets one more element.
// Errors, naming `layer`: ShapeError if x is too small for the padding; ValueError for same_padding with a
// stride other than 1 or a padding other than 0.
template <class O> Tensor padded(const char* layer, const Tensor& x, const O& o) {
  Tensor y = x;
  const Shape kernel = sizes(*o.kernel), stride = sizes(o.stride), padding = sizes(o.padding),
              dilation = sizes(o.dilation);
  for (int d = 0; d < kernel.size(); ++d) {
    const int at = x.dim() - kernel.size() + d;
    const int64_t n = at < 1 ? 0 : x.size(at);
    if (o.same_padding && (stride[d] != 1 || padding[d] != 0))
      throw ValueError(layer, "same_padding needs stride 1 and padding 0, got stride ", o.stride,
                       " and padding ", o.padding);
    const int64_t total = o.same_padding ? dilation[d] * (kernel[d] - 1) : 2 * padding[d];
    if (total == 0) continue;
    const int64_t before = total / 2, after = total - before;
    const int64_t limit = o.padding_mode == PaddingMode::kReflect    ? n - 1
                          : o.padding_mode == PaddingMode::kCircular ? n
                          : n > 0                                    ? after
                                                                     : 0;
    if (after > limit)
      throw ShapeError(layer, "padding ", after, " of this mode does not fit dim ", at, ": x ", describe(x));
    std::vector<int64_t> index;
    for (int64_t i = -before; i < n + after; ++i) index.push_back(source_index(i, n, o.padding_mode));
    y = index_select(y, at, gradus::to(tensor(index, {int64_t(index.size())}), x.device()));
  }
  return y;
}

// Calls the op for the number of spatial dims. b: bias, may be undefined.
template <class Size>
Tensor apply(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions<Size>& o) {
  if constexpr (std::same_as<Size, int64_t>)
    return conv1d(x, w, b, {o.stride, o.padding, o.dilation, o.groups, o.same_padding});
  else if constexpr (std::same_as<Size, Size2>)
    return conv2d(x, w, b, {o.stride, o.padding, o.dilation, o.groups, o.same_padding});
  else
    return conv3d(x, w, b, {o.stride, o.padding, o.dilation, o.groups, o.same_padding});
}
template <class Size>
Tensor apply(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTransposeOptions<Size>& o) {
  const ConvTransposeFuncOptions<Size> options{o.stride, o.padding, o.output_padding, o.dilation, o.groups};
  if constexpr (std::same_as<Size, int64_t>)
    return conv_transpose1d(x, w, b, options);
  else if constexpr (std::same_as<Size, Size2>)
    return conv_transpose2d(x, w, b, options);
  else
    return conv_transpose3d(x, w, b, options);
}

}  // namespace

template <class O, OptionName N> Tensor Conv<O, N>::initial_weight() {
  const O& o = this->options();
  if (o.in == kLazy) return this->uninitialized();
  const Shape kernel = sizes(*o.kernel);
  const bool empty_kernel = std::any_of(kernel.begin(), kernel.end(), [](int64_t k) { return k < 1; });
  if (o.in < 1 || o.out < 1 || empty_kernel || o.groups < 1)
    throw ValueError(N.name, "expected in, out, kernel, groups >= 1, given in ", *o.in, ", out ", *o.out,
                     ", kernel ", *o.kernel, ", groups ", o.groups);
  if (o.in % o.groups != 0 || o.out % o.groups != 0)
    throw ValueError(N.name, "expected in and out to be multiples of groups, given in ", *o.in, ", out ",
                     *o.out, ", groups ", o.groups);
  Shape shape = kTransposed<O> ? Shape{o.in, o.out / o.groups} : Shape{o.out, o.in / o.groups};
  for (const int64_t k : kernel) shape.push_back(k);
  return init::kaiming_uniform_(empty(shape, {.device = internal::initial_device()}), {.a = std::sqrt(5.0)});
}

template <class O, OptionName N> Tensor Conv<O, N>::initial_bias() const {
  if (!this->options().bias || !weight.defined()) return {};
  const double bound = 1 / std::sqrt(double(init::fans(weight).in));
  return init::uniform_(empty({this->options().out}, {.device = internal::initial_device()}),
                        {.low = -bound, .high = bound});
}

// Creates the parameters of a layer with in = kLazy in its first call.
template <class O, OptionName N> void Conv<O, N>::set_size(const Tensor& x) {
  if (this->has_sizes()) return;
  const int rank = sizes(*this->options().kernel).size();
  if (x.dim() != rank + 2 && x.dim() != rank + 1)
    throw ShapeError(N.name, "expected x of ", rank + 2, " dims, or ", rank + 1, " without a batch, got ",
                     describe(x));
  this->mutable_options().in = x.size(x.dim() - rank - 1);
  this->initialize(weight, initial_weight());
  this->initialize(bias, initial_bias());
  this->set_initialized();
}

template <class O, OptionName N> Tensor Conv<O, N>::forward(const Tensor& x) {
  set_size(x);
  const O& o = this->options();
  if constexpr (!kTransposed<O>) {
    if (o.padding_mode != PaddingMode::kZeros) {
      O unpadded = o;
      unpadded.padding = 0;
      unpadded.same_padding = false;
      return apply(padded(N.name, x, o), weight, bias, unpadded);
    }
  }
  return apply(x, weight, bias, o);
}

Tensor Conv2d::relu(const Tensor& x) {
  if (has_hooks() || options().padding_mode != PaddingMode::kZeros) return gradus::relu((*this)(x));
  return call([&] {
    set_size(x);
    const Options& o = options();
    return conv2d_relu(x, weight, bias, {o.stride, o.padding, o.dilation, o.groups, o.same_padding});
  });
}

std::optional<Tensor> Conv2d::fuse_next(const Layer& next, const Tensor& x) {
  if (next.has_hooks() || !dynamic_cast<const ReLU*>(&next)) return {};
  return relu(x);
}

template class Conv<Conv1dOptions, "Conv1d">;
template class Conv<Conv2dOptions, "Conv2d">;
template class Conv<Conv3dOptions, "Conv3d">;
template class Conv<ConvTranspose1dOptions, "ConvTranspose1d">;
template class Conv<ConvTranspose2dOptions, "ConvTranspose2d">;
template class Conv<ConvTranspose3dOptions, "ConvTranspose3d">;

template class ModuleWith<Conv1dOptions, Layer>;
template class ModuleWith<Conv2dOptions, Layer>;
template class ModuleWith<Conv3dOptions, Layer>;
template class ModuleWith<ConvTranspose1dOptions, Layer>;
template class ModuleWith<ConvTranspose2dOptions, Layer>;
template class ModuleWith<ConvTranspose3dOptions, Layer>;
}  // namespace gradus::nn
