// Raw max and average pooling over 1 to 3 spatial dims, including adaptive pooling. The differentiable forms are
// in gradus/autograd/ops/images/pool.h.
//
// Max pooling is a gather by an index tensor, its gradient a scatter by the same indices, and the derivative of
// this gradient the gather again. Average pooling and its gradient are transposes of each other.
#pragma once

#include <utility>

#include "gradus/tensor/base/required.h"
#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct MaxPool1dOptions {
  Required<int64_t, "kernel"> kernel;
  int64_t stride = 0;      // 0: kernel
  int64_t padding = 0;     // on every side, with -infinity
  int64_t dilation = 1;    // spacing of the cells of a window
  bool ceil_mode = false;  // windows may extend beyond the padded input
};

struct MaxPool2dOptions {
  Required<Size2, "kernel"> kernel;
  Size2 stride = 0;        // 0: kernel
  Size2 padding = 0;       // on every side, with -infinity
  Size2 dilation = 1;      // spacing of the cells of a window
  bool ceil_mode = false;  // windows may extend beyond the padded input
};

struct MaxPool3dOptions {
  Required<Size3, "kernel"> kernel;
  Size3 stride = 0;        // 0: kernel
  Size3 padding = 0;       // on every side, with -infinity
  Size3 dilation = 1;      // spacing of the cells of a window
  bool ceil_mode = false;  // windows may extend beyond the padded input
};

struct AvgPool1dOptions {
  Required<int64_t, "kernel"> kernel;
  int64_t stride = 0;   // 0: kernel
  int64_t padding = 0;  // zeros, on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // the divisor includes cells in the padding
};

struct AvgPool2dOptions {
  Required<Size2, "kernel"> kernel;
  Size2 stride = 0;   // 0: kernel
  Size2 padding = 0;  // zeros, on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // the divisor includes cells in the padding
  int64_t divisor_override = 0;   // the divisor; 0: the number of cells
};

struct AvgPool3dOptions {
  Required<Size3, "kernel"> kernel;
  Size3 stride = 0;   // 0: kernel
  Size3 padding = 0;  // zeros, on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // the divisor includes cells in the padding
  int64_t divisor_override = 0;   // the divisor; 0: the number of cells
};

// The windows of a pooling, one for each output position: at constant strides, or for adaptive pooling at equal
// divisions of the input. Unused dims (d and h of signals, d of images) have size 1.
struct PoolWindows {
  int rank = 2;  // 1: signals [N,C,L], 2: images [N,C,H,W], 3: volumes [N,C,D,H,W]
  Size3 input, output, kernel, stride = 1, padding = 0, dilation = 1;  // adaptive: kernel is the maximum
  bool adaptive = false, count_include_pad = true;
  int64_t divisor = 0;  // of averages; 0: the number of cells

  int64_t cells() const { return kernel.d * kernel.h * kernel.w; }
  // Returns whether windows do not overlap.
  bool are_disjoint() const {
    return !adaptive && stride.d >= kernel.d && stride.h >= kernel.h && stride.w >= kernel.w &&
           dilation == Size3(1);
  }
};

namespace raw {

// Check the arguments and return the windows over x.
PoolWindows max_pool1d_windows(const Tensor& x, const MaxPool1dOptions& options);
PoolWindows max_pool2d_windows(const Tensor& x, const MaxPool2dOptions& options);
PoolWindows max_pool3d_windows(const Tensor& x, const MaxPool3dOptions& options);
PoolWindows avg_pool1d_windows(const Tensor& x, const AvgPool1dOptions& options);
PoolWindows avg_pool2d_windows(const Tensor& x, const AvgPool2dOptions& options);
PoolWindows avg_pool3d_windows(const Tensor& x, const AvgPool3dOptions& options);
PoolWindows adaptive_windows(const char* op, const Tensor& x, int rank, Size3 output);

// Returns the maximum of each window and the row-major index within the window of its first occurrence. NaN counts
// as the maximum. Indices are u8, or i32 for windows of more than 256 cells.
std::pair<Tensor, Tensor> max_pool(const Tensor& x, const PoolWindows& windows);
// Returns zeros to which each element of dy is added at the input position given by `index`.
Tensor max_pool_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows);
// Returns the elements of x at the positions given by `index`.
Tensor max_pool_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows);

// Returns `index` as linear (row-major) positions (i64) in the signal, image or volume, as PyTorch's
// return_indices.
Tensor max_pool_positions(const Tensor& index, const PoolWindows& windows);

Tensor avg_pool(const Tensor& x, const PoolWindows& windows);
// Returns the gradient of avg_pool: each element of dy, divided by the divisor, is added to all cells of its
// window.
Tensor avg_pool_spread(const Tensor& dy, const PoolWindows& windows);

// Returns the maximum of each window, without an index. The windows must be disjoint.
Tensor max_pool_value(const Tensor& x, const PoolWindows& windows);
// Overwrites x = relu(...) with the gradient of max_pool2d(relu(.)) for disjoint windows: dy at the first
// maximum of a window if the maximum is positive, else 0.
void max_pool_relu_grad_(const Tensor& x, const Tensor& dy, const PoolWindows& windows);

// Kernels: f32 or f64, channels-last, no empty tensors. max_pool and max_pool_scatter also support 16-bit floats;
// for the others these are converted to f32.
extern KernelSlot<void(const Tensor& y, const Tensor& index, const Tensor& x, PoolWindows)>
    max_pool_kernel;  // index may be undefined
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& index, PoolWindows)>
    max_pool_scatter_kernel;
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& index, PoolWindows)>
    max_pool_gather_kernel;
extern KernelSlot<void(const Tensor& positions, const Tensor& index, PoolWindows)> max_pool_positions_kernel;
extern KernelSlot<void(const Tensor& y, const Tensor& x, PoolWindows)> avg_pool_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, PoolWindows)> avg_pool_spread_kernel;
extern KernelSlot<void(const Tensor& x, const Tensor& dy, PoolWindows)> max_pool_relu_grad_kernel;

}  // namespace raw
}  // namespace gradus
