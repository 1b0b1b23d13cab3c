// Raw copies, fills and conversions of layout, dtype and device, without autograd; the differentiable functions
// are in gradus/autograd/ops/copy.h. Work is queued on the current stream of the device, and a copy between
// devices is ordered with the current streams of both. A copy from a GPU to the host waits until the data has
// arrived, one from the host until src has been computed. Other work may still be queued, except on cpu:0.
#pragma once

#include <vector>

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Kernels. dst and src have the same shape with at least one element, any dtypes and any strides, and do not
// overlap. Strides of src may be 0 (broadcast) or negative (reversed).
extern KernelSlot<void(const Tensor& dst, const Tensor& src)> copy_kernel;
extern KernelSlot<void(const Tensor& dst, Number value)> fill_kernel;
// dst[i] = src[i] for dense tensors of one layout, which do not overlap. All of dst have one dtype, and all of src: the
// same, or f32 for 16-bit floats. `some` is any of the tensors, and selects the device.
extern KernelSlot<void(const Tensor& some, const std::vector<Tensor>& dst, const std::vector<Tensor>& src)>
    copy_each_kernel;

// Checks that `op` may write to x.
// Errors: ShapeError if several elements of x share memory: x is expanded, or its strides overlap.
void check_writable(std::string_view op, const Tensor& x);

// dst = src, converted to dst's dtype, for any strides and devices. src broadcasts to dst's shape. If dst and src
// overlap in memory, dst gets the values that src had before the call.
// Errors: ShapeError if src does not broadcast, and as check_writable unless src has one element; DeviceError if
// src is a meta tensor and dst is not, or for a GPU in a program without a CUDA copy kernel.
void copy_(const Tensor& dst, const Tensor& src);
// copy_ for each pair of tensors. On a GPU one launch copies many pairs of one dtype and dense layout. Writes no element
// twice: the tensors of dst do not overlap each other or those of src.
void copy_each_(const std::vector<Tensor>& dst, const std::vector<Tensor>& src);
// dst = value, converted to dst's dtype without a check of the range. Elements of dst may share memory.
void fill_(const Tensor& dst, Number value);

// Return x itself if x is row-major (contiguous) or channels-last, else a copy in that layout.
Tensor contiguous(const Tensor& x);
Tensor channels_last(const Tensor& x);  // Errors: ShapeError unless x has 3 to 5 dimensions
// Returns x itself if x has the dtype, else a converted copy in x's layout.
Tensor to(const Tensor& x, DType dtype);
// Returns copies in bf16 or f16 of dense f32 tensors on one device, each in its layout. On a GPU one launch makes many.
std::vector<Tensor> round_all(const std::vector<Tensor>& xs, DType dtype);
// Returns x itself if x is on the device, else a copy in x's layout; row-major if x is not dense.
// Errors: DeviceError if x is a meta tensor, or a GPU takes part and the program has no CUDA copy kernel.
Tensor to(const Tensor& x, Device device);
// Returns a copy in x's layout.
Tensor clone(const Tensor& x);

}  // namespace gradus::raw
