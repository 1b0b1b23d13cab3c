// Pooling over windows of signals [N,C,L], images [N,C,H,W] and volumes [N,C,D,H,W], with or without N,
// differentiable to any order. Options (gradus/tensor/ops/images/pool.h): kernel, stride (0: the kernel's
// size), padding, dilation (max pooling), ceil_mode, count_include_pad (default true) and divisor_override
// (average pooling; 0: the number of elements). Results with a batch dim are channels-last. 16-bit floats are
// computed in f32.
#pragma once

#include <utility>
#include <vector>

#include "gradus/tensor/ops/images/pool.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Return the maximum of each window:
//   y[n,c,p,q] = max over i,j of x[n, c, p*stride - padding + i*dilation, q*stride - padding + j*dilation]
// where padding counts as -infinity. Among equal maxima, the first in row-major order gets the gradient,
// among NaNs, which count as larger than all numbers, the last.
// max_pool2d(x, 2) is max_pool2d(x, {.kernel = 2}).
// Shapes: x [N,C,H,W] -> [N,C,P,Q] or [C,H,W] -> [C,P,Q],
//   P = floor((H + 2 padding - dilation (kernel-1) - 1) / stride) + 1, Q alike
//   (ceil with ceil_mode, unless the last window would start beyond the image).
// Errors: ShapeError for other dims or a window larger than the padded image; ValueError for sizes out of
// range or a padding of more than half the window; DTypeError unless floating.
Tensor max_pool1d(const Tensor& x, const MaxPool1dOptions& options);
inline Tensor max_pool1d(const Tensor& x, int64_t kernel, int64_t stride = 0, int64_t padding = 0) {
  return max_pool1d(x, MaxPool1dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options);
inline Tensor max_pool2d(const Tensor& x, Size2 kernel, Size2 stride = 0, Size2 padding = 0) {
  return max_pool2d(x, MaxPool2dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
Tensor max_pool3d(const Tensor& x, const MaxPool3dOptions& options);
inline Tensor max_pool3d(const Tensor& x, Size3 kernel, Size3 stride = 0, Size3 padding = 0) {
  return max_pool3d(x, MaxPool3dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}

// The same, with the positions (i64) of the maxima in the row-major order of their signal, image or volume.
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const MaxPool1dOptions& options);
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const MaxPool2dOptions& options);
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const MaxPool3dOptions& options);

// Partial inverse of max pooling: writes each element of x at its position in `indices`, and zeros elsewhere.
// If several elements have one position, the last is kept.
// Shapes: x and indices [N,C,...] -> [N,C,size...], or without N.
// Errors: ShapeError; ValueError for a size below 1; IndexError for a position beyond the result.
Tensor max_unpool(const Tensor& x, const Tensor& indices, const Dims& size);

// Return the mean of each window. With count_include_pad the padding counts as zeros; without it, the mean is
// over elements of x alone.
// Shapes and errors: as max_pool2d; also ValueError for a divisor below 0.
Tensor avg_pool1d(const Tensor& x, const AvgPool1dOptions& options);
inline Tensor avg_pool1d(const Tensor& x, int64_t kernel, int64_t stride = 0, int64_t padding = 0) {
  return avg_pool1d(x, AvgPool1dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options);
inline Tensor avg_pool2d(const Tensor& x, Size2 kernel, Size2 stride = 0, Size2 padding = 0) {
  return avg_pool2d(x, AvgPool2dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}
Tensor avg_pool3d(const Tensor& x, const AvgPool3dOptions& options);
inline Tensor avg_pool3d(const Tensor& x, Size3 kernel, Size3 stride = 0, Size3 padding = 0) {
  return avg_pool3d(x, AvgPool3dOptions{.kernel = kernel, .stride = stride, .padding = padding});
}

// Return the mean or maximum of `output` windows per image: window p of P covers rows floor(p H / P) to
// ceil((p + 1) H / P) - 1, and columns likewise.
// Shapes: x [N,C,H,W] -> [N,C,output.h,output.w], or without N.
// Errors: ShapeError for other dims; ValueError for an output size below 1; DTypeError unless floating.
Tensor adaptive_avg_pool1d(const Tensor& x, int64_t output);
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output);
Tensor adaptive_avg_pool3d(const Tensor& x, Size3 output);
Tensor adaptive_max_pool1d(const Tensor& x, int64_t output);
Tensor adaptive_max_pool2d(const Tensor& x, Size2 output);
Tensor adaptive_max_pool3d(const Tensor& x, Size3 output);

// The same, with the positions (i64) of the maxima in the row-major order of their signal, image or volume.
std::pair<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, int64_t output);
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, Size2 output);
std::pair<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& x, Size3 output);

template <class Size> struct LpPoolOptions {
  Required<double, "p"> p;
  Required<Size, "kernel"> kernel;
  Size stride = 0;  // 0: the kernel's size
  bool ceil_mode = false;
};
using LpPool1dOptions = LpPoolOptions<int64_t>;
using LpPool2dOptions = LpPoolOptions<Size2>;
using LpPool3dOptions = LpPoolOptions<Size3>;
// Lp pooling: the p-th root of the sum of each window's p-th powers; NaN where the sum is negative.
// Errors: as avg_pool2d; ValueError for a p that is not positive and finite.
Tensor lp_pool1d(const Tensor& x, const LpPool1dOptions& options);
Tensor lp_pool2d(const Tensor& x, const LpPool2dOptions& options);
Tensor lp_pool3d(const Tensor& x, const LpPool3dOptions& options);

template <class Size> struct FractionalMaxPoolOptions {
  Required<Size, "kernel"> kernel;
  // Exactly one of output and output_ratio is set.
  Size output = 0;                        // size of the result
  std::vector<double> output_ratio = {};  // output / size of x, in (0, 1): one, or one per dim
  Tensor random_samples = {};             // [N,C,2] (3d: [N,C,3]) in [0, 1); undefined: drawn
};
using FractionalMaxPool2dOptions = FractionalMaxPoolOptions<Size2>;
using FractionalMaxPool3dOptions = FractionalMaxPoolOptions<Size3>;
// Return the maximum of each of `output` windows, at random positions that advance by the ratio of the sizes on
// average: window i of a dim of size n starts at floor((i + u) a) - floor(u a), a = (n - kernel) / (output - 1), and the
// last one at n - kernel, where u is the random sample. Samples of 2d are for W and H, of 3d for D, H and W, as in
// PyTorch. Maxima as in max_pool2d.
// Shapes: x [N,C,H,W] -> [N,C,output.h,output.w], or without N; then random_samples are [1,C,2].
// Errors: ShapeError for other dims; ValueError unless one of output and output_ratio is given, for sizes below 1 or
// windows that do not fit; DTypeError unless floating.
// Source: Graham, "Fractional max-pooling", 2014.
Tensor fractional_max_pool2d(const Tensor& x, const FractionalMaxPool2dOptions& options);
Tensor fractional_max_pool3d(const Tensor& x, const FractionalMaxPool3dOptions& options);
// The same, with the positions (i64) of the maxima in the row-major order of their image or volume.
std::pair<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& x,
                                                             const FractionalMaxPool2dOptions& options);
std::pair<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& x,
                                                             const FractionalMaxPool3dOptions& options);

// Backward ops of max pooling over `windows` (gradus/tensor/ops/images/pool.h). max_pool_scatter adds dy to
// the elements of dx at `index`; max_pool_gather reads x at `index`. Each is the gradient of the other.
// Shapes: dy and index [N,C,P,Q], x and dx [N,C,H,W]; `index` is a result of raw::max_pool.
Tensor max_pool_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows);
Tensor max_pool_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows);
// Backward op of average pooling: adds each element of dy, divided by the window's divisor, to its window.
Tensor avg_pool_spread(const Tensor& dy, const PoolWindows& windows);

}  // namespace gradus
