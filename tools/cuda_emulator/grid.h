// A kernel launch on the emulated device: checks its limits, and runs its blocks one after another in a
// pseudo-random order (order.h).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "gradus/tools/cuda_emulator/block.h"

namespace gradus::cuda::emulated {

// Returns the status that an H100 returned for a launch of this shape.
cudaError_t check_shape(int64_t blocks, int64_t threads, int64_t shared_bytes);

// Runs a launch of a checked shape to its end. A fault is delivered (fault.h) and ends the launch.
void run_grid(const Launch& launch);

}  // namespace gradus::cuda::emulated
