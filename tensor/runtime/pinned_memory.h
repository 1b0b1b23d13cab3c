// A caching allocator of pinned (page-locked) host memory, as PyTorch's CachingHostAllocator. Copies between
// pinned and device memory are asynchronous. Pinned memory is slow to allocate, so released blocks are
// cached, and reused after the queued work on them has finished (events, as in PyTorch).
//
//   void* p = memory.allocate(device, bytes);
//   ... queue a copy from or to p on a stream, then memory.record_use(p, stream) ...
//   memory.release(p);  // the copy may still be running
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::internal {

// The pinned memory of a runtime. Thread-safe; calls for one block must not be concurrent.
class PinnedMemory {
 public:
  // Returns the program's instance for a device's runtime; never destroyed.
  // Errors: as runtime_of.
  static PinnedMemory& of(Device device);

  explicit PinnedMemory(DeviceRuntime& runtime);

  // Returns a block of at least `bytes` (> 0) for copies to and from a device; null if memory is short. The
  // contents are uninitialized. Reuses the earliest released block of at most 2 * bytes if no queued work
  // uses the block, else allocates a multiple of 64 KiB. Blocks the host only if queued work still uses
  // enough released blocks of this size (64 MiB, but at least 4 and at most 64 blocks), or if record_use()
  // failed for the block.
  // Errors: those of the runtime, if waiting or freeing fails.
  void* allocate(int device, int64_t bytes);
  // Records that the work queued so far on a stream of the block's device uses the allocated block at p.
  // Replaces the record of an earlier call. Ignored if p is not an allocated block.
  // Errors: those of the runtime if no event can be recorded. The next allocate() that reuses the block then
  // synchronizes the device.
  void record_use(const void* p, DeviceRuntime::StreamHandle stream);
  // Returns the allocated block at p to the cache, without waiting for the work that uses it. Does nothing in
  // a child of fork(), where the memory belongs to the parent.
  void release(void* p) noexcept;

  // Returns the number of blocks, allocated and free.
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

  // reuse_free and make return a list of at most one block, which is in neither allocated_ nor free_.
  Blocks reuse_free(int device, int64_t bytes);
  void wait_for_pending_use(Block* block);
  Blocks make(int device, int64_t bytes);
  void release_free();

  DeviceRuntime& runtime_;
  const int process_;  // fork_count() at construction: changes in a child of fork()
  std::mutex mutex_;
  Blocks allocated_, free_;  // free_ in order of release
};

}  // namespace gradus::internal
