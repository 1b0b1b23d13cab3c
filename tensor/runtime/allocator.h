// The caching allocator behind every storage: freed blocks are kept by size class and handed out again,
// because fresh pages from the system cost more than most ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gradus/tensor/base/device.h"

namespace gradus {

// Bytes of one device. `live` counts what tensors hold (rounded up to the size class), `cached` what
// waits for reuse.
struct MemoryStats {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;  // highest live_bytes since reset_peak_memory
  int64_t cached_bytes = 0;
  int64_t allocations = 0;   // requests served
  int64_t system_calls = 0;  // requests that went to the system
};

// Of the meta device: what its tensors would hold elsewhere.
MemoryStats memory_stats(Device device = kCPU);
void reset_peak_memory(Device device = kCPU);
// Gives cached blocks back to the system.
void empty_cache(Device device = kCPU);
std::string to_string(const MemoryStats& s);  // "live 12.0 MiB, peak 34.1 MiB, ..."

// The bytes a request of `bytes` really takes (its size class).
int64_t allocation_size(int64_t bytes);

// Returns a 64-byte aligned block for `bytes` (> 0); null on the meta device, where blocks are only counted.
// Errors: Error "out of memory" with the request and the statistics.
void* allocate(Device device, int64_t bytes);
// Returns a block of `allocate(device, bytes)`; `bytes` as requested.
void deallocate(Device device, void* p, int64_t bytes) noexcept;

}  // namespace gradus
