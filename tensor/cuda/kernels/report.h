// Device code: report() of an invalid value. Note [Value reports] in tensor/cuda/runtime/value_reports.h.
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// Reports the 64-bit pattern of an invalid value and its position, 0 <= position < 2^40. Any thread may call
// report(); each position is reported at most once per launch. The first launch of the stream that reports
// owns the record; of its reports the one with the smallest position stays. A null `to.record`: does nothing.
__device__ inline void report(const ValueReports& to, int64_t position, uint64_t value) {
  if (!to.record) return;
  const uint64_t owner = atomicCAS(&to.record->launch, 0, to.launch);
  if (owner != 0 && owner != to.launch) return;
  atomicMin(&to.record->limit, static_cast<uint64_t>(to.limit));
  atomicMin(&to.record->per_row, static_cast<uint64_t>(to.per_row));
  for (int i = 0; i < ValueRecord::kParts; ++i) {
    const uint64_t part =
        value >> (i * ValueRecord::kPartBits) & ((uint64_t{1} << ValueRecord::kPartBits) - 1);
    atomicMin(&to.record->words[i], static_cast<uint64_t>(position) << ValueRecord::kPartBits | part);
  }
}

}  // namespace gradus::cuda
