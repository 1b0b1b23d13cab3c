// Elementwise conversion of arrays between any two dtypes, in the calling thread.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cpu {

// dst[i * dst_stride] = To(src[i * src_stride]) for i < n. Strides count elements: src_stride 0 repeats one
// element, -1 reverses the order. The arrays do not overlap.
using ConvertFunction = void (*)(int64_t n, void* dst, int64_t dst_stride, const void* src,
                                 int64_t src_stride);
// Returns the function that converts `from` to `to`. Floats are rounded to nearest even (f64 to a 16-bit
// float by way of f32), converted to integers by truncation (out of range: unspecified), and to bool by x !=
// 0. Integers keep their low bits. Equal dtypes are copied.
ConvertFunction converter(DType to, DType from);

}  // namespace gradus::cpu
