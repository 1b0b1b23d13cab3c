// Checks and results that element-wise ops share.
#pragma once

#include <initializer_list>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Returns an uninitialized tensor for the result of an op on operands that broadcast together: it lies as
// they do where those of the full shape agree, else channels-last if one of them does, else row-major.
// Errors: ShapeError, DeviceError.
Tensor empty_result(const char* op, DType dtype, std::initializer_list<const Tensor*> operands);

// Returns src as it can be read while dst is written: src itself, or a copy when the two overlap but not
// element by element.
// Errors: ShapeError unless src broadcasts to dst; DeviceError; DTypeError for fractions into integers.
Tensor source_for(const char* op, const Tensor& dst, const Tensor& src);

}  // namespace gradus::raw
