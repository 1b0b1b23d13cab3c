// HostTensor: bytes that the ranks of a host share as one copy in memory (see Job::share).
#pragma once

#include <functional>
#include <string>

#include "gradus/tensor/tensor.h"

namespace gradus::data {

// Bytes of this process's own, and those that it shares with other ranks of its host.
struct MemoryUse {
  int64_t own = 0;
  int64_t shared = 0;
};

struct HostTensor {
  Tensor bytes;  // u8[N]; not to be written to
  MemoryUse memory;
};

// Returns `size` bytes with the contents that `key` names. The first rank to ask for `key` writes
// them with fill().
// Errors: what fill() throws.
HostTensor host_tensor(const std::string& key, int64_t size, const std::function<void(uint8_t* out)>& fill);

}  // namespace gradus::data
