// Copies between layouts, dtypes and devices, queued on the current streams. A copy from a GPU to the host
// waits for the data. Conversions do not check ranges. Errors of all: StateError for an undefined tensor.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns x with its elements in row-major order; x itself when they already are.
// Grad: dy.
Tensor contiguous(const Tensor& x);

// Returns x [N,C,...] (3 to 5 dims) in channels-last layout: the same shape, with stride 1 in dim 1. Returns
// x itself when it is channels-last.
// Errors: ShapeError for another number of dimensions.
// Grad: dy.
Tensor channels_last(const Tensor& x);

// Returns x converted to `dtype`; x itself when it has that dtype.
// Grad: dy, converted back (none through an integer dtype).
Tensor to(const Tensor& x, DType dtype);

// Returns x on `device`; x itself when it is there.
// Grad: dy, moved back.
Tensor to(const Tensor& x, Device device);

// Returns a copy of x in the same layout.
// Grad: dy.
Tensor clone(const Tensor& x);

// Writes src into dst, with conversion of dtype, copy between devices and broadcasting as needed. Not
// differentiable: use indexed assignment, where or clone for gradients.
// Errors: ShapeError when src does not broadcast to dst, or elements of dst share memory; StateError when a
// recording follows dst.
void copy_(const Tensor& dst, const Tensor& src);

// Writes `value`, converted to x's dtype, into every element.
// Errors: StateError when a recording follows x; ValueError for a value out of range of an integer dtype.
void fill_(const Tensor& x, Number value);

}  // namespace gradus
