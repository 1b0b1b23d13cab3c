// A caching allocator of pinned (page-locked) host memory, as PyTorch's CachingHostAllocator. Copies between
// pinned and device memory are asynchronous. Pinned memory is slow to allocate, so blocks are cached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::internal {

// The pinned memory of a runtime. Thread-safe.
class PinnedMemory {
 public:
  // Returns the instance of a device's runtime.
  // Errors: as runtime_of.
  static PinnedMemory& of(Device device);

  explicit PinnedMemory(DeviceRuntime& runtime);

  // Returns an unused block of at least `bytes` (> 0) for copies to and from a device; null if memory is short.
  // Blocks the host only if queued work still uses many blocks of this size, or if use() has failed for the block.
  void* take(int device, int64_t bytes);
  // Records that the work queued so far on a stream of the block's device uses the taken block at p. Replaces the
  // record of an earlier call. Ignored if p is not a taken block.
  // Errors: those of the runtime if no event can be recorded. The next take() of the block then synchronizes the
  // device.
  void use(const void* p, DeviceRuntime::StreamHandle stream);
  // Returns a block to the cache, without waiting for its users.
  void give_back(void* p) noexcept;

  // Returns the number of blocks, taken and free.
  size_t blocks();

 private:
  // The work that may still use a block: none, the work before its event, or unknown because recording failed.
  enum class PendingUse : uint8_t { kNone, kEvent, kUnknown };
  struct Block {
    Block(DeviceRuntime& runtime, int d, int64_t n) : device(d), bytes(n), event(runtime, d) {}
    int device;
    int64_t bytes;
    NativeEvent event;
    PendingUse pending_use = PendingUse::kNone;
    void* p = nullptr;
  };
  using Blocks = std::list<Block>;  // moved between lists by splice

  Blocks take_free(int device, int64_t bytes);
  void wait_for_user(Block* block);
  Blocks make(int device, int64_t bytes);
  void release_free();

  DeviceRuntime& runtime_;
  const int process_;  // fork_count() at construction
  std::mutex mutex_;
  Blocks taken_, free_;  // free_ in order of return
};

}  // namespace gradus::internal
