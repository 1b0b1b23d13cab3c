// The caching allocator of tensor storage. Freed blocks are cached by size class and reused, because fresh pages
// from the system cost more time than most ops. All functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gradus/tensor/base/device.h"

namespace gradus {

// Memory statistics of one device. `live` are the blocks in use, with sizes rounded up to the size class; `cached`
// are freed blocks that wait for reuse.
struct MemoryStats {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;  // highest live_bytes since reset_peak_memory
  int64_t cached_bytes = 0;
  int64_t allocations = 0;   // requests
  int64_t system_calls = 0;  // requests for which memory was taken from the system
};

// Returns the statistics of a device. For the meta device: the bytes that its tensors would have on another
// device.
MemoryStats memory_stats(Device device = kCPU);
void reset_peak_memory(Device device = kCPU);
// Returns cached blocks to the system.
void empty_cache(Device device = kCPU);
std::string to_string(const MemoryStats& s);  // "live 12.0 MiB, peak 34.1 MiB, ..."

// Returns the size class of a request on a CPU: the size of its block. Large ones may be 25 % larger.
int64_t allocation_size(int64_t bytes);

// Returns a 64-byte aligned block (less with GRADUS_GUARD) for `bytes` (> 0); null on the meta device, where
// blocks are only counted. On a GPU the block is for work of the calling thread's current stream (Note
// [Blocks of a device], device_allocator.h).
// Errors: OutOfMemoryError with the request and the statistics; DeviceError if the device does not exist.
void* allocate(Device device, int64_t bytes);
// Frees a block of allocate(device, bytes). `bytes` must be the requested number. Queued kernels of
// CPU devices must have run.
void deallocate(Device device, void* p, int64_t bytes) noexcept;

// Returns whether work on streams other than the device's current one may still use the block that begins at p.
// False on CPU devices, whose queues own the tensors of their kernels, and if p is not the start of a block.
bool is_used_on_other_streams(Device device, const void* p);

}  // namespace gradus
