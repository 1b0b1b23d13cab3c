// Conversion of arrays between f16 (IEEE 754 binary16) and f32 in vectors (F16C or NEON), in the calling thread.
// NaN stays NaN; values beyond f16's range become infinity. Arrays may be unaligned; n = 0 does nothing.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cpu {

// to[i] = float(from[i]) for i < n, exact. The arrays must not overlap.
void to_floats(float* to, const f16* from, int64_t n);
// to[i] = f16(from[i]) for i < n, rounded to nearest, ties to even. The arrays must not overlap.
void to_f16(f16* to, const float* from, int64_t n);

}  // namespace gradus::cpu
