// Raw max, average and adaptive pooling of signals [N,C,L], images [N,C,H,W] and volumes [N,C,D,H,W]. Results are
// channels-last, with the input's dtype. The differentiable forms are in gradus/autograd/ops/images/pool.h.
//
// Max pooling is max_pool_gather(x, index); its gradient is max_pool_scatter(dy, index), and the gradient of the
// scatter is the gather. Average pooling and avg_pool_spread, its gradient, are transposes of each other.
#pragma once

#include <utility>

#include "gradus/tensor/base/required.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Options of pooling, as in PyTorch. S: int64_t, Size2 or Size3. With ceil_mode the output size is rounded up: the
// last window may exceed the padded input by less than a stride, but starts in the input or its left padding.
template <class S> struct MaxPoolOptions {
  Required<S, "kernel"> kernel;
  S stride = 0;    // 0: the kernel size
  S padding = 0;   // number of cells of -infinity on every side
  S dilation = 1;  // distance between adjacent cells of a window
  bool ceil_mode = false;
};
using MaxPool1dOptions = MaxPoolOptions<int64_t>;
using MaxPool2dOptions = MaxPoolOptions<Size2>;
using MaxPool3dOptions = MaxPoolOptions<Size3>;

struct AvgPool1dOptions {
  Required<int64_t, "kernel"> kernel;
  int64_t stride = 0;   // 0: the kernel size
  int64_t padding = 0;  // number of zeros on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // the divisor includes cells in the padding
};

template <class S> struct AvgPoolOptions {
  Required<S, "kernel"> kernel;
  S stride = 0;   // 0: the kernel size
  S padding = 0;  // number of zeros on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // the divisor includes cells in the padding
  int64_t divisor_override = 0;   // the divisor; 0: the number of cells, as count_include_pad tells
};
using AvgPool2dOptions = AvgPoolOptions<Size2>;
using AvgPool3dOptions = AvgPoolOptions<Size3>;

// The geometry of a pooling: one window for each output position. Windows start at multiples of the stride, minus
// the padding. Adaptive pooling: output o of O reads inputs floor(o I / O) to ceil((o + 1) I / O) - 1 in each dim.
// A cell is one position of a window, in the input or its padding. Dims d and h that x lacks have size 1.
struct PoolWindows {
  int rank = 2;  // 1: signals [N,C,L], 2: images [N,C,H,W], 3: volumes [N,C,D,H,W]
  // adaptive: kernel is the size of the largest window, and stride, padding and dilation are unused
  Size3 input, output, kernel, stride = 1, padding = 0, dilation = 1;
  bool adaptive = false, count_include_pad = true;
  // Divisor of averages. 0: the number of the window's cells in the input, or with count_include_pad in the padded
  // input. Cells beyond the padded input (ceil_mode) never count.
  int64_t divisor = 0;

  // Returns the number of cells of the largest window.
  int64_t kernel_numel() const { return kernel.d * kernel.h * kernel.w; }
  // Returns whether windows do not overlap.
  bool are_disjoint() const {
    return !adaptive && stride.d >= kernel.d && stride.h >= kernel.h && stride.w >= kernel.w &&
           dilation == Size3(1);
  }
};

namespace raw {

// Check the arguments and return the windows over x. `op` is the name of the caller, for errors.
// Errors: ShapeError if x has other dims or no cells, or if a window exceeds the padded input; DTypeError unless x
// is floating; ValueError for a size out of range, or a padding of more than half a window.
PoolWindows max_pool1d_windows(const Tensor& x, const MaxPool1dOptions& options);
PoolWindows max_pool2d_windows(const Tensor& x, const MaxPool2dOptions& options);
PoolWindows max_pool3d_windows(const Tensor& x, const MaxPool3dOptions& options);
PoolWindows avg_pool1d_windows(const Tensor& x, const AvgPool1dOptions& options);
PoolWindows avg_pool2d_windows(const Tensor& x, const AvgPool2dOptions& options);
PoolWindows avg_pool3d_windows(const Tensor& x, const AvgPool3dOptions& options);
PoolWindows adaptive_windows(const char* op, const Tensor& x, int rank, Size3 output);

// The functions below have x or dx of shape [N,C,input...] and y, dy and index of shape [N,C,output...].
// Errors: ShapeError for other shapes; DTypeError or DeviceError for an index of another dtype or device.

// Returns the maximum of each window and the index of its first occurrence: its row-major position in a window of
// size `kernel`. If a window has NaNs, the maximum is NaN with the index of the last NaN. Indices are u8, or i32
// if the kernel has more than 256 cells.
std::pair<Tensor, Tensor> max_pool(const Tensor& x, const PoolWindows& windows);
// Returns dx: zeros to which each element of dy is added at the input position given by `index`.
Tensor max_pool_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows);
// Returns the elements of x at the positions given by `index`.
Tensor max_pool_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows);

// Returns `index` as linear (row-major) positions (i64) in the signal, image or volume, as PyTorch's
// return_indices.
Tensor max_pool_positions(const Tensor& index, const PoolWindows& windows);

// Returns the mean of each window: the sum of its cells in x, divided by the divisor.
Tensor avg_pool(const Tensor& x, const PoolWindows& windows);
// Returns dx, the gradient of avg_pool: each element of dy, divided by the divisor, is added to all cells of its
// window.
Tensor avg_pool_spread(const Tensor& dy, const PoolWindows& windows);

// Returns the maximum of each window, without an index.
Tensor max_pool_value(const Tensor& x, const PoolWindows& windows);
// Overwrites x = relu(h), a channels-last signal or image, with the gradient of max_pool(relu(h)) with respect to
// h: dy at the first maximum of each window if the maximum is positive, else 0. The windows must be disjoint and
// without padding.
// Errors: DTypeError unless x and dy have one dtype.
void max_pool_relu_grad_(const Tensor& x, const Tensor& dy, const PoolWindows& windows);

// Kernels, one per device type, which the functions above call. Tensors are channels-last and not empty.
// dtypes: all floats for max_pool, max_pool_scatter, max_pool_relu_grad and for all kernels of GPUs; f32 and f64 for
// the other kernels of the CPU, whose 16-bit inputs the functions above convert to f32.
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
