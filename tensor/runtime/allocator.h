// The caching allocator of every storage. It keeps freed blocks by size class and hands them out again,
// because fresh pages from the system cost more time than most ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gradus/tensor/base/device.h"

namespace gradus {

// Bytes of one device. `live` counts the blocks of tensors (rounded up to the size class), `cached` the freed
// blocks that wait for reuse.
struct MemoryStats {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;  // highest live_bytes since reset_peak_memory
  int64_t cached_bytes = 0;
  int64_t allocations = 0;   // requests served
  int64_t system_calls = 0;  // requests that the system had to serve
};

// Returns the counts of a device. For the meta device they are the bytes that its tensors
// would hold elsewhere.
MemoryStats memory_stats(Device device = kCPU);
void reset_peak_memory(Device device = kCPU);
// Returns cached blocks to the system.
void empty_cache(Device device = kCPU);
std::string to_string(const MemoryStats& s);  // "live 12.0 MiB, peak 34.1 MiB, ..."

// Returns the size of the block that serves a request of `bytes` (its size class).
int64_t allocation_size(int64_t bytes);

// Returns a 64-byte aligned block for `bytes` (> 0); null on the meta device, where blocks are only counted.
// Errors: Error "out of memory" with the request and the statistics.
void* allocate(Device device, int64_t bytes);
// Gives back a block of `allocate(device, bytes)`. `bytes` is the requested number.
void deallocate(Device device, void* p, int64_t bytes) noexcept;

}  // namespace gradus
