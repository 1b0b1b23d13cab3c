// A launch on the emulated device: its limits, and its blocks, one after another in the order of a seed.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "gradus/tools/cuda_emulator/block.h"

namespace gradus::cuda::emulated {

// Returns what a real device answers to a launch of this shape, as recorded.
cudaError_t check_shape(int64_t blocks, int64_t threads, int64_t shared_bytes);

// Runs a launch of a checked shape to its end. A fault is delivered (fault.h), and ends it.
void run_grid(const Launch& launch);

}  // namespace gradus::cuda::emulated
