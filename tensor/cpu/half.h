// f16 to f32 and back, many numbers at a time.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cpu {

void to_floats(float* to, const f16* from, int64_t n);
// Rounds to the nearest, ties to even.
void to_halves(f16* to, const float* from, int64_t n);

}  // namespace gradus::cpu
