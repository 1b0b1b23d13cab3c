// Raw copies and conversions between layouts, dtypes and devices, without autograd. Users call
// gradus/autograd/ops/copy.h.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Kernels. dst and src have the same shape, any dtypes and any strides; strides of src may be 0 (broadcast) or
// negative (reversed).
extern KernelSlot<void(const Tensor& dst, const Tensor& src)> copy_kernel;
extern KernelSlot<void(const Tensor& dst, Number value)> fill_kernel;

// Checks that `op` may write to x.
// Errors: ShapeError if several elements of x share memory: x is expanded, or its strides overlap.
void check_writable(std::string_view op, const Tensor& x);

// dst = src, for any strides, dtypes and devices. src broadcasts to dst's shape.
// Errors: ShapeError if src does not broadcast, and as check_writable unless src has one element; DeviceError if
// src is a meta tensor and dst is not.
void copy_(const Tensor& dst, const Tensor& src);
// dst = value, converted to dst's dtype. Elements of dst may share memory.
void fill_(const Tensor& dst, Number value);

// Return x itself if it has the layout, else a copy.
Tensor contiguous(const Tensor& x);
Tensor channels_last(const Tensor& x);  // Errors: ShapeError unless x has 3 to 5 dimensions
// Return x itself if it has the dtype, or is on the device, else a copy in x's layout.
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);
// Returns a copy in x's layout.
Tensor clone(const Tensor& x);

}  // namespace gradus::raw
