// Pinned memory: memory of the host that a device reads and writes by itself. For a copy from or to other
// memory the host must wait. Pinned memory takes long to make, so blocks are kept.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::internal {

class PinnedMemory {
 public:
  // Returns that of a device's runtime.
  // Errors: as runtime_of.
  static PinnedMemory& of(Device device);

  explicit PinnedMemory(DeviceRuntime& runtime);

  // Returns a block of at least `bytes` (> 0), for copies to and from a device; null where there is no room.
  void* take(int device, int64_t bytes);
  // Notes that work queued before `until` uses the block at p: nobody gets it before that is done. What is
  // no block is passed over.
  void use(const void* p, const Event& until);
  // Waits for nobody.
  void give_back(void* p) noexcept;

 private:
  struct Block {
    void* p;
    int64_t bytes;
    bool is_taken = true;
    Event until = {};
  };
  Block* find(const void* p);
  Block* find_free(int64_t bytes);
  Block* make(int device, int64_t bytes);
  void release_free();

  DeviceRuntime& runtime_;
  const int process_;  // the fork_count() that it was made at
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

}  // namespace gradus::internal
