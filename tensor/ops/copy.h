// Raw copies: between layouts, dtypes and devices. No autograd; users call gradus/autograd/ops/copy.h.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Both tensors have one shape; any strides (in src 0, broadcast, and negative ones, reversed, too), any
// pair of dtypes.
extern KernelSlot<void(const Tensor& dst, const Tensor& src)> copy_kernel;
extern KernelSlot<void(const Tensor& dst, Number value)> fill_kernel;

// Errors: ShapeError when several elements of x, which `op` is to write, share a place: x is expanded, or
// its strides overlap.
void check_writable(std::string_view op, const Tensor& x);

// Writes src's elements into dst: any strides, dtypes and devices; src broadcasts to dst's shape.
// Errors: ShapeError when it does not, and as check_writable unless src is one element; DeviceError for a
// meta source of a real tensor.
void copy_(const Tensor& dst, const Tensor& src);
// Writes `value`, converted, into every element, which may share places.
void fill_(const Tensor& dst, Number value);

// Return x itself when it already lies so, else a copy that does.
Tensor contiguous(const Tensor& x);
Tensor channels_last(const Tensor& x);  // Errors: ShapeError unless x has 3 to 5 dimensions
// Return x itself when it already is so, else a copy in x's layout.
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);
// Returns a copy in x's layout.
Tensor clone(const Tensor& x);

}  // namespace gradus::raw
