// Raw pooling over image windows. The differentiable forms are in gradus/autograd/ops/pool.h.
//
// Max pooling, its gradient and that gradient's derivative are a gather, a scatter and the gather again, over
// one index tensor; average pooling and its gradient are each other's transposes.
#pragma once

#include <utility>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/required.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct MaxPool2dOptions {
  Required<Size2> kernel;
  Size2 stride = 0;        // 0: the kernel's size
  Size2 padding = 0;       // cells that never win, on every side
  Size2 dilation = 1;      // distance between the window's cells
  bool ceil_mode = false;  // windows may hang over the far edges
};

struct AvgPool2dOptions {
  Required<Size2> kernel;
  Size2 stride = 0;   // 0: the kernel's size
  Size2 padding = 0;  // zeros on every side
  bool ceil_mode = false;
  bool count_include_pad = true;  // divide by the window's size with the padding in it
};

// Where the windows of a pooling lie: one per output cell, at even steps or, when adaptive, evenly cut.
struct PoolWindows {
  Size2 input, output, kernel, stride, padding,
      dilation = 1;  // kernel of adaptive pooling: the largest window
  bool adaptive = false, count_include_pad = true;

  // No cell of the input lies in two windows.
  bool are_disjoint() const {
    return !adaptive && stride.h >= kernel.h && stride.w >= kernel.w && dilation == Size2(1);
  }
};

namespace raw {

// Checks the arguments and places the windows on x[N,C,H,W].
PoolWindows max_pool2d_windows(const Tensor& x, const MaxPool2dOptions& options);
PoolWindows avg_pool2d_windows(const Tensor& x, const AvgPool2dOptions& options);
PoolWindows adaptive_windows(const char* op, const Tensor& x, Size2 output);

// Returns each window's maximum (the first of equals; a NaN wins) and its cell's number within the window,
// row by row: u8, or i32 for windows of more than 256 cells.
std::pair<Tensor, Tensor> max_pool2d(const Tensor& x, const PoolWindows& windows);
// Moves each dy to the cell that `index` names; cells that are named several times add up.
Tensor max_pool2d_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows);
// Returns the elements of x[N,C,H,W] that `index` names.
Tensor max_pool2d_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows);

Tensor avg_pool2d(const Tensor& x, const PoolWindows& windows);
// Spreads each dy evenly over its window.
Tensor avg_pool2d_spread(const Tensor& dy, const PoolWindows& windows);

// Returns the maximum of each of x's disjoint windows, without an index.
Tensor max_pool2d_value(const Tensor& x, const PoolWindows& windows);
// Overwrites x = relu(...) by the gradient of max_pool2d(relu(.)): dy at each disjoint window's first maximum
// if that is positive, else 0.
void max_pool2d_relu_grad_(const Tensor& x, const Tensor& dy, const PoolWindows& windows);

// Kernels: one floating dtype, dense with channels innermost, no empty tensors.
inline constinit KernelSlot<void(const Tensor& y, const Tensor& index, const Tensor& x, PoolWindows)>
    max_pool2d_kernel{"max_pool2d"};  // index may be undefined
inline constinit KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& index, PoolWindows)>
    max_pool2d_scatter_kernel{"max_pool2d_scatter"};
inline constinit KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& index, PoolWindows)>
    max_pool2d_gather_kernel{"max_pool2d_gather"};
inline constinit KernelSlot<void(const Tensor& y, const Tensor& x, PoolWindows)> avg_pool2d_kernel{
    "avg_pool2d"};
inline constinit KernelSlot<void(const Tensor& dx, const Tensor& dy, PoolWindows)> avg_pool2d_spread_kernel{
    "avg_pool2d_spread"};
inline constinit KernelSlot<void(const Tensor& x, const Tensor& dy, PoolWindows)> max_pool2d_relu_grad_kernel{
    "max_pool2d_relu_grad_"};

}  // namespace raw
}  // namespace gradus
