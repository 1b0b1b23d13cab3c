// How a kernel reports a value that is an error. Note [Value reports] (tensor/cuda/runtime/value_reports.h).
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// Reports that the value at a position below 2^40 is an error. Positions of one launch differ.
__device__ inline void report(const ValueReports& to, int64_t position, uint64_t value) {
  if (!to.record) return;
  const uint64_t taken = atomicCAS(&to.record->launch, 0, to.launch);
  if (taken != 0 && taken != to.launch) return;
  atomicMin(&to.record->limit, static_cast<uint64_t>(to.limit));
  atomicMin(&to.record->per_row, static_cast<uint64_t>(to.per_row));
  for (int i = 0; i < ValueRecord::kParts; ++i) {
    const uint64_t part =
        value >> (i * ValueRecord::kPartBits) & ((uint64_t{1} << ValueRecord::kPartBits) - 1);
    atomicMin(&to.record->words[i], static_cast<uint64_t>(position) << ValueRecord::kPartBits | part);
  }
}

}  // namespace gradus::cuda
