// Raw pooling over windows of signals, images and volumes. The differentiable forms
// are in gradus/autograd/ops/images/pool.h.
//
// Max pooling is a gather by an index tensor. Its gradient is a scatter by the same indices, and
// the derivative of that gradient is the gather again. Average pooling and its gradient are
// transposes of each other.
#pragma once

#include <utility>

#include "gradus/tensor/base/required.h"
#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct MaxPool1dOptions {
  Required<int64_t, "kernel"> kernel;
  int64_t stride = 0;      // 0: the kernel's size
  int64_t padding = 0;     // cells that never win, on every side
  int64_t dilation = 1;    // distance between the window's cells
  bool ceil_mode = false;  // windows may hang over the far edges
};

struct MaxPool2dOptions {
  Required<Size2, "kernel"> kernel;
  Size2 stride = 0;        // 0: the kernel's size
  Size2 padding = 0;       // cells that never win, on every side
  Size2 dilation = 1;      // distance between the window's cells
  bool ceil_mode = false;  // windows may hang over the far edges
};

struct MaxPool3dOptions {
  Required<Size3, "kernel"> kernel;
  Size3 stride = 0;        // 0: the kernel's size
  Size3 padding = 0;       // cells that never win, on every side
  Size3 dilation = 1;      // distance between the window's cells
  bool ceil_mode = false;  // windows may hang over the far edges
};

struct AvgPool1dOptions {
  Required<int64_t, "kernel"> kernel;
  int64_t stride = 0;   // 0: the kernel's size
  int64_t padding = 0;  // zeros on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // divide by the window's size with the padding in it
};

struct AvgPool2dOptions {
  Required<Size2, "kernel"> kernel;
  Size2 stride = 0;   // 0: the kernel's size
  Size2 padding = 0;  // zeros on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // divide by the window's size with the padding in it
  int64_t divisor_override = 0;   // if not 0: divide by this instead
};

struct AvgPool3dOptions {
  Required<Size3, "kernel"> kernel;
  Size3 stride = 0;   // 0: the kernel's size
  Size3 padding = 0;  // zeros on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // divide by the window's size with the padding in it
  int64_t divisor_override = 0;   // if not 0: divide by this instead
};

// Where the windows of a pooling lie. Each output cell has one window. Windows lie at even steps, or for
// adaptive pooling cut the input evenly. The unused sides (d and h of a signal, d of an image) are 1.
struct PoolWindows {
  int rank = 2;  // 1: signals [N,C,L], 2: images [N,C,H,W], 3: volumes [N,C,D,H,W]
  Size3 input, output, kernel, stride = 1, padding = 0, dilation = 1;  // adaptive: the largest kernel
  bool adaptive = false, count_include_pad = true;
  int64_t divisor = 0;  // 0: the number of cells

  int64_t cells() const { return kernel.d * kernel.h * kernel.w; }
  // Returns whether no cell of the input lies in two windows.
  bool are_disjoint() const {
    return !adaptive && stride.d >= kernel.d && stride.h >= kernel.h && stride.w >= kernel.w &&
           dilation == Size3(1);
  }
};

namespace raw {

// Check the arguments and return the windows on x.
PoolWindows max_pool1d_windows(const Tensor& x, const MaxPool1dOptions& options);
PoolWindows max_pool2d_windows(const Tensor& x, const MaxPool2dOptions& options);
PoolWindows max_pool3d_windows(const Tensor& x, const MaxPool3dOptions& options);
PoolWindows avg_pool1d_windows(const Tensor& x, const AvgPool1dOptions& options);
PoolWindows avg_pool2d_windows(const Tensor& x, const AvgPool2dOptions& options);
PoolWindows avg_pool3d_windows(const Tensor& x, const AvgPool3dOptions& options);
PoolWindows adaptive_windows(const char* op, const Tensor& x, int rank, Size3 output);

// Returns each window's maximum and the number of its cell within the window, counted row by row. The first
// of equal cells counts; a NaN wins. The numbers are u8, or i32 for windows of more than 256 cells.
std::pair<Tensor, Tensor> max_pool(const Tensor& x, const PoolWindows& windows);
// Returns zeros with each element of dy added to the cell that `index` names.
Tensor max_pool_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows);
// Returns the elements of x that `index` names.
Tensor max_pool_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows);

// Returns the positions (i64) of the cells that `index` names, in the row-major order of their signal,
// image or volume.
Tensor max_pool_positions(const Tensor& index, const PoolWindows& windows);

Tensor avg_pool(const Tensor& x, const PoolWindows& windows);
// Returns the gradient of avg_pool: each element of dy divided evenly among the cells of its window.
Tensor avg_pool_spread(const Tensor& dy, const PoolWindows& windows);

// Returns the maximum of each window, without an index. The windows must be disjoint.
Tensor max_pool_value(const Tensor& x, const PoolWindows& windows);
// Overwrites x = relu(...) with the gradient of max_pool2d(relu(.)) for disjoint windows: dy at the first
// maximum of a window if the maximum is positive, else 0.
void max_pool_relu_grad_(const Tensor& x, const Tensor& dy, const PoolWindows& windows);

// Kernels: f32 or f64, dense with channels innermost, no empty tensors. max_pool and max_pool_scatter also
// take 16-bit floats; for the others these are converted to f32.
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
