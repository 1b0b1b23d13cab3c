// HostTensor: read-only bytes in memory that all ranks on a host share (see Job::share).
#pragma once

#include <functional>
#include <string>

#include "gradus/tensor/tensor.h"

namespace gradus::data {

// Numbers of bytes that belong to this process alone, and that it shares with other ranks on its host.
struct MemoryUse {
  int64_t own = 0;
  int64_t shared = 0;
};

struct HostTensor {
  Tensor bytes;  // u8[N], read-only
  MemoryUse memory;
};

// Returns `size` bytes that are identified by `key` on this host. The first rank that requests `key` initializes
// them with fill().
// Errors: those of fill().
HostTensor host_tensor(const std::string& key, int64_t size, const std::function<void(uint8_t* out)>& fill);

}  // namespace gradus::data
