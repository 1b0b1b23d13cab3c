// Copies from the host's pageable memory, for which CUDA makes the host wait: they go through pinned memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// Queues a copy to memory of the device, which is the calling thread's, on a stream of it. The source may
// change when this returns. The host waits only where the device is many copies behind.
// Errors: CudaError.
void copy_staged(void* to, int device, const void* from, int64_t bytes, cudaStream_t stream);
// Returns how many pinned blocks are kept, each with an event.
int64_t staging_blocks();

}  // namespace gradus::cuda
