// CUDA kernels of convolution and its gradients. Convolutions by filters of one pixel, with stride 1 and without
// padding, are matrix products (cuBLASLt). All others are cuDNN's, or direct_conv.h's if cuDNN has no plan. Images
// are channels-last, filters and bias row-major, and no tensor is empty: tensor/ops/images/conv.h has the contract.
// Work is queued on the tensors' current stream.
// cuDNN has no plan for 16-bit operands with a result in f32. Such results are either computed from operands that
// are converted to f32 (TF32, in which 16-bit floats are exact, is then allowed), or in 16 bits and converted.
#include "gradus/tensor/ops/images/conv.h"

#include "gradus/tensor/cuda/cublas/cublaslt.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/kernels/images/direct_conv.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::cuda {
namespace {

using raw::ConvGeometry;

// Returns the sizes for direct_conv.h. The d axis of a 2-D image has size 1.
DirectConv direct_conv_of(const Convolution& c) {
  const ConvGeometry& g = c.geometry;
  const auto axis = [&](int d) {  // 0: d, 1: h, 2: w
    const int i = d - (3 - g.rank());
    if (i < 0) return ConvAxis{1, 1, 1, 1, 0, 1};
    return ConvAxis{c.x.size(i + 2), c.y.size(i + 2), c.w.size(i + 2),
                    g.stride[i],     g.padding[i],    g.dilation[i]};
  };
  return {c.x.size(0), c.x.size(1), c.y.size(1), g.groups, axis(0), axis(1), axis(2)};
}

// Returns the filters as [taps, summed channels of a group, channels of the result], row-major.
Tensor filters_of(const Convolution& c) {
  const int64_t groups = c.geometry.groups, out = c.w.size(0) / groups, in = c.w.size(1);
  const Shape shape{groups, out, in, c.w.numel() / (groups * out * in)};
  const Tensor w = view_as_strided(c.w, shape, row_major_strides(shape), c.w.impl().offset);
  return raw::contiguous(raw::permute(w, c.pass == ConvPass::kForward ? Dims{3, 2, 0, 1} : Dims{3, 1, 0, 2}));
}

void convolve_directly(const char* op, const Convolution& c, cudaStream_t stream) {
  const DirectConv sizes = direct_conv_of(c);
  if (c.pass == ConvPass::kWeightGrad)
    return direct_conv_weight_grad(op, view_of(c.w), view_of(c.y), view_of(c.x), sizes, stream);
  const Tensor filters = filters_of(c);
  if (c.pass == ConvPass::kInputGrad)
    return direct_conv_input_grad(op, view_of(c.x), view_of(c.y), view_of(filters), sizes, stream);
  const View bias = c.bias ? view_of(c.bias) : View{nullptr, c.y.dtype()};
  direct_conv(op, view_of(c.y), view_of(c.x), view_of(filters), bias, sizes, stream);
}

cudaStream_t stream_of(const Convolution& c) { return stream_for({&c.x, &c.w, &c.y, &c.bias}); }

// Returns false, and does nothing, if cuDNN has no plan.
bool try_cudnn(const char* op, const Convolution& c) {
  const cudaStream_t stream = stream_of(c);
  return call_library([&] { return convolve(op, c, stream); });
}
void run_convolution(const char* op, const Convolution& c) {
  if (!try_cudnn(op, c)) convolve_directly(op, c, stream_of(c));
}

// Returns [C] as an image of one pixel, [1, C, 1, 1] for dims = 4.
Tensor as_pixel(const Tensor& channels, int dims) {
  Shape shape = Dims::filled(dims, 1);
  shape[1] = channels.size(0);
  return view_as_strided(channels, shape, row_major_strides(shape), channels.impl().offset);
}

Tensor to_f32(const Tensor& x) { return raw::to(x, DType::kF32); }

// Returns whether a convolution of x is a product of the matrix of its pixels: filters of one pixel, stride 1, no
// padding.
bool is_pointwise(const Tensor& x, const Shape& w, const ConvGeometry& g) {
  bool is = g.groups == 1 && x.numel() / x.size(1) <= kMaxRows;
  for (int d = 0; d < g.rank(); ++d) is = is && w[d + 2] == 1 && g.stride[d] == 1 && g.padding[d] == 0;
  return is;
}
// Returns channels-last images [N, C, ...] as a matrix [pixels, C], and filters [O, C, 1, ...] as one [O, C].
Tensor pixels_of(const Tensor& x) {
  const int64_t channels = x.size(1);
  return view_as_strided(x, {x.numel() / channels, channels}, {channels, 1}, x.impl().offset);
}
Tensor matrix_of(const Tensor& w) {
  return view_as_strided(w, {w.size(0), w.size(1)}, {w.size(1), 1}, w.impl().offset);
}

void conv_cuda(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry g) {
  if (is_pointwise(x, w.shape(), g))
    return raw::matmul_kernel.cuda(pixels_of(y), pixels_of(x), raw::transpose(matrix_of(w), 0, 1), bias);
  run_convolution("conv", {ConvPass::kForward, x, y, w, bias, g});
}

// cuDNN has no plan for relu without a bias; then relu is a separate kernel.
void conv_relu_cuda(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry g) {
  if (is_pointwise(x, w.shape(), g))
    return raw::matmul_relu_kernel.cuda(pixels_of(y), pixels_of(x), raw::transpose(matrix_of(w), 0, 1), bias);
  Convolution c{ConvPass::kForward, x, y, w, bias, g, /*relu=*/true};
  if (bias && try_cudnn("conv_relu", c)) return;
  c.relu = false;
  run_convolution("conv_relu", c);
  raw::Unary<functors::Relu>::kernel.cuda(y, y, {});
}

// dx = input gradient of dy, plus bias [C] per channel if defined. All have one dtype.
void input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& bias,
                const ConvGeometry& g, bool tf32 = Context::current().tf32) {
  run_convolution("conv_input_grad", {ConvPass::kInputGrad, dx, dy, w, {}, g, /*relu=*/false, tf32});
  if (bias) raw::add_(dx, as_pixel(bias, dx.dim()));
}
void conv_input_grad_cuda(const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& bias,
                          ConvGeometry g) {
  if (is_pointwise(dx, w.shape(), g))
    return raw::matmul_kernel.cuda(pixels_of(dx), pixels_of(dy), matrix_of(w), bias);
  if (!bias || size_of(dx.dtype()) > 2) return input_grad(dx, dy, w, bias, g);
  // The bias is added in f32, so that the result is rounded once.
  const Tensor sum = empty_channels_last(dx.shape(), {DType::kF32, dx.device()});
  input_grad(sum, to_f32(dy), to_f32(w), to_f32(bias), g, true);
  raw::copy_(dx, sum);
}

// db = sum of dy per channel, rounded to dy's dtype.
void bias_grad(const Tensor& db, const Tensor& dy) {
  const Tensor sums = db.dtype() == dy.dtype() ? db : empty_like(db, dy.dtype());
  raw::sum_kernel(as_pixel(sums, dy.dim()), dy, 1.0);
  if (!sums.is_same(db)) raw::copy_(db, sums);
}

// dw, db: the gradients for dy and x, which may have 16 bits where dw and db are in f32.
void conv_weight_grad_cuda(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                           ConvGeometry g) {
  const auto compute = [&](const Tensor& dw, const Tensor& dy, const Tensor& x,
                           bool tf32 = Context::current().tf32) {
    run_convolution("conv_weight_grad", {ConvPass::kWeightGrad, x, dy, dw, {}, g, /*relu=*/false, tf32});
  };
  const bool is_wider = dw.dtype() != x.dtype(), is_exact = Context::current().exact_weight_gradients;
  if (db) bias_grad(db, is_wider && is_exact ? to_f32(dy) : dy);
  if (is_pointwise(x, dw.shape(), g))  // cuBLASLt's results may be wider than the operands
    return raw::matmul_kernel.cuda(matrix_of(dw), raw::transpose(pixels_of(dy), 0, 1), pixels_of(x), {});
  if (!is_wider) return compute(dw, dy, x);
  if (is_exact) return compute(dw, to_f32(dy), to_f32(x), true);
  const Tensor rounded = empty_like(dw, x.dtype());
  compute(rounded, dy, x);
  raw::copy_(dw, rounded);
}

[[maybe_unused]] const bool is_set =
    (raw::conv_kernel.cuda = &conv_cuda, raw::conv_relu_kernel.cuda = &conv_relu_cuda,
     raw::conv_input_grad_kernel.cuda = &conv_input_grad_cuda,
     raw::conv_weight_grad_kernel.cuda = &conv_weight_grad_cuda, true);

}  // namespace
}  // namespace gradus::cuda
