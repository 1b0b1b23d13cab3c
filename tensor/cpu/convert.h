// Elementwise conversion of arrays between any two dtypes, in the calling thread.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cpu {

// dst[i * dst_stride] = To(src[i * src_stride]) for i < n. Strides count elements: src_stride 0 repeats one
// element, -1 reverses the order. The arrays do not overlap.
using ConvertFunction = void (*)(int64_t n, void* dst, int64_t dst_stride, const void* src,
                                 int64_t src_stride);
// Returns the function that converts `from` to `to`. Results that are floats are rounded to nearest even;
// 16-bit floats by way of f32, so that f64 and large integers are rounded twice. Floats become integers by
// truncation (out of range: unspecified). Integers from integers keep the low bits. A bool is x != 0. Equal
// dtypes are copied.
ConvertFunction converter(DType to, DType from);

}  // namespace gradus::cpu
