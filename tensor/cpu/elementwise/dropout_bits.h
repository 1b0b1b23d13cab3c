// Parts of dropout masks, for kernels that apply a mask without storing it.
#pragma once

#include <cstdint>

#include "gradus/tensor/ops/random.h"

namespace gradus::cpu {

// keep[i] = element first + i of dropout_mask_kernel's mask with probability p and this key, for i < n.
void dropout_bits(const raw::DrawKey& key, double p, int64_t first, int64_t n, bool* keep);

}  // namespace gradus::cpu
