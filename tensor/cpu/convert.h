// Conversion loops between any two dtypes.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cpu {

// Converts n elements. Strides count elements; src_stride 0 repeats one element, -1 reverses their order.
// Equal dtypes give a plain copy.
using ConvertFunction = void (*)(int64_t n, void* dst, int64_t dst_stride, const void* src,
                                 int64_t src_stride);
ConvertFunction converter(DType to, DType from);

}  // namespace gradus::cpu
