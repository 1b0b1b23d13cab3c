// Memory functions of the emulated CUDA runtime: allocation, pinned host memory, copies and fills. Statuses
// are those recorded on an H100 (hardware.md).
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/pinned.h"

using namespace gradus::cuda::emulated;  // NOLINT

namespace {

// Blocks from cudaMallocHost and cudaHostAlloc. Other pinned ranges were registered.
std::set<const void*>& made() {
  static auto& blocks = *new std::set<const void*>;
  return blocks;
}

bool is_pageable(const void* p) { return !device_that_holds(p) && !is_pinned(p); }

// Returns whether the addresses fit the kind of copy. As on a real device, only pageable memory is refused.
bool kind_fits(const void* to, const void* from, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return !is_pageable(to);
    case cudaMemcpyDeviceToHost:
      return !is_pageable(from);
    case cudaMemcpyDeviceToDevice:
      return !is_pageable(to) && !is_pageable(from);
    default:
      return true;
  }
}

// Returns whether the range lies within one block or pinned range. Pageable memory is not checked.
bool is_accessible(const void* p, size_t bytes) {
  if (!p) return false;
  if (const DeviceMemory* memory = device_that_holds(p)) return memory->is_within_a_block(p, bytes);
  return !is_pinned(p) || is_pinned(p, bytes);
}

cudaError_t check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (bytes == 0) return cudaSuccess;
  if (!to || !from) return cudaErrorInvalidValue;
  // With cudaMemcpyDefault, freed device memory passes as host memory. The copy is a fault when it runs.
  if (kind != cudaMemcpyDefault && (!is_accessible(to, bytes) || !is_accessible(from, bytes)))
    return cudaErrorInvalidValue;
  const auto is_cut = [=](const void* p) {
    const DeviceMemory* memory = device_that_holds(p);
    return memory && memory->is_within_a_block(p, 1) && !memory->is_within_a_block(p, bytes);
  };
  if (is_cut(to) || is_cut(from) || !kind_fits(to, from, kind)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

// A copy from pageable memory up to this size reads it during the call (a staged copy). The host waits for
// the end of a larger one.
constexpr size_t kStaged = size_t(64) << 10;

// `waits`: a synchronous call.
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle,
                 bool waits, const char* function = __builtin_FUNCTION()) {
  const auto queue = [&](Runtime& runtime) {
    cudaError_t status = check_copy(to, from, bytes, kind);
    if (status != cudaSuccess || bytes == 0) return status;
    const cudaStream_t stream = runtime.stream(handle);
    if (status = runtime.captures.check_work(stream); status != cudaSuccess) return status;
    const bool from_pageable = is_pageable(from), to_pageable = is_pageable(to);
    if (from_pageable && !to_pageable && bytes <= kStaged && !stream->capture) {
      const auto* bytes_of = static_cast<const std::byte*>(from);
      auto staged = std::make_shared<std::vector<std::byte>>(bytes_of, bytes_of + bytes);
      runtime.enqueue(stream, {[=] { DeviceMemory::copy(to, staged->data(), staged->size()); }});
      return cudaSuccess;
    }
    const bool within_devices = device_that_holds(to) && device_that_holds(from);
    const std::shared_ptr<End> end = runtime.enqueue(
        stream, {.run = [=] { DeviceMemory::copy(to, from, bytes); },
                 .ranges = {{to, bytes, true, is_pinned(to)}, {from, bytes, false, is_pinned(from)}}});
    if (!end) return cudaSuccess;  // captured
    if ((waits && !within_devices) || from_pageable || to_pageable) runtime.run_until(end);
    return cudaSuccess;
  };
  return call(queue, function);
}

cudaError_t set(void* to, int value, size_t bytes, cudaStream_t handle, bool waits,
                const char* function = __builtin_FUNCTION()) {
  const auto queue = [&](Runtime& runtime) {
    if (bytes == 0) return cudaSuccess;
    DeviceMemory* memory = device_that_holds(to);
    if (!is_accessible(to, bytes) || is_pageable(to)) return cudaErrorInvalidValue;
    const cudaStream_t stream = runtime.stream(handle);
    if (const cudaError_t status = runtime.captures.check_work(stream); status != cudaSuccess) return status;
    const auto fill = [=] {
      if (memory)
        memory->set(to, value, bytes);
      else
        std::memset(to, value, bytes);
    };
    const std::shared_ptr<End> end =
        runtime.enqueue(stream, {.run = fill, .ranges = {{to, bytes, true, is_pinned(to)}}});
    if (end && waits && !memory) runtime.run_until(end);
    return cudaSuccess;
  };
  return call(queue, function);
}

cudaError_t make_pinned(void** p, size_t bytes, const char* function = __builtin_FUNCTION()) {
  const auto make = [&](Runtime&) {
    if (!p) return cudaErrorInvalidValue;
    *p = nullptr;
    if (bytes == 0) return cudaSuccess;
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return cudaErrorMemoryAllocation;
    pin(block, bytes);
    made().insert(block);
    *p = block;
    return cudaSuccess;
  };
  return unsafe_call(make, function);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** p, size_t bytes) {
  return unsafe_call([&](Runtime&) {
    if (!p) return cudaErrorInvalidValue;
    *p = bytes ? memory_of(current_device)->allocate(bytes, gradus::internal::called_op) : nullptr;
    return bytes && !*p ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

// Waits until the device is idle.
cudaError_t CUDARTAPI cudaFree(void* p) {
  return unsafe_call([&](Runtime& runtime) {
    if (!p) return cudaSuccess;
    DeviceMemory* memory = device_that_holds(p);
    if (!memory) return cudaErrorInvalidValue;
    runtime.run_until_idle(device_number(memory));
    return memory->free(p) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t CUDARTAPI cudaMallocHost(void** p, size_t bytes) { return make_pinned(p, bytes); }

cudaError_t CUDARTAPI cudaHostAlloc(void** p, size_t bytes, unsigned flags) {
  if (flags > 7) return call([](Runtime&) { return cudaErrorInvalidValue; });
  return make_pinned(p, bytes);
}

cudaError_t CUDARTAPI cudaFreeHost(void* p) {
  return unsafe_call([&](Runtime& runtime) {
    if (!p) return cudaSuccess;
    if (!made().contains(p)) return cudaErrorInvalidValue;
    for (int i = 0; i < device_count(); ++i) runtime.run_until_idle(i);
    made().erase(p);
    munmap(p, unpin(p));
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaHostRegister(void* p, size_t bytes, unsigned flags) {
  return unsafe_call([&](Runtime&) {
    const bool known = flags <= 3 || flags == cudaHostRegisterReadOnly;
    if (!p || !bytes || !known || device_that_holds(p)) return cudaErrorInvalidValue;
    for (const void* block : made())
      if (block == p) return cudaErrorInvalidValue;
    return pin(p, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t CUDARTAPI cudaHostUnregister(void* p) {
  return unsafe_call([&](Runtime& runtime) {
    if (!p || made().contains(p)) return cudaErrorInvalidValue;
    const bool inside = is_pinned(p);
    for (int i = 0; i < device_count(); ++i) runtime.run_until_idle(i);
    if (unpin(p)) return cudaSuccess;
    return inside ? cudaErrorInvalidValue : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t* unused, size_t* total) {
  return call([&](Runtime&) {
    const DeviceMemory& memory = *memory_of(current_device);
    if (unused) *unused = memory.size() - memory.used();
    if (total) *total = memory.size();
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, true);
}
cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, false);
}
cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                          size_t bytes, cudaStream_t stream) {
  if (!memory_of(to_device) || !memory_of(from_device))
    return call([](Runtime&) { return cudaErrorInvalidDevice; });
  return copy(to, from, bytes, cudaMemcpyDefault, stream, false);
}
cudaError_t CUDARTAPI cudaMemset(void* to, int value, size_t bytes) {
  return set(to, value, bytes, nullptr, true);
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return set(to, value, bytes, stream, false);
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  return call_about_devices([&](Runtime&) {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {};
    auto* const address = const_cast<void*>(p);
    const DeviceMemory* memory = device_that_holds(p);
    if (memory && memory->is_within_a_block(p, 1)) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = device_number(memory);
      attributes->devicePointer = address;
    } else if (is_pinned(p)) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = 0;
      attributes->devicePointer = attributes->hostPointer = address;
    } else {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;
      attributes->hostPointer = address;
    }
    return cudaSuccess;
  });
}

}  // extern "C"
