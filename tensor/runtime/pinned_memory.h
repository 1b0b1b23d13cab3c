// Pinned memory: memory of the host that a device reads and writes by itself. For a copy from or to other
// memory the host must wait. Pinned memory takes long to make, so blocks are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::internal {

class PinnedMemory {
 public:
  // Returns that of a device's runtime.
  // Errors: as runtime_of.
  static PinnedMemory& of(Device device);

  explicit PinnedMemory(DeviceRuntime& runtime);

  // Returns a block of at least `bytes` (> 0), for copies to and from a device, that nothing uses any more;
  // null where there is no room. Waits only where queued work still uses many blocks of such a size, or where
  // use() failed for one of them.
  void* take(int device, int64_t bytes);
  // Notes that what is queued on a stream of the block's device uses the block at p, which the caller has
  // taken. A later call takes the place of an earlier one. What is no block is passed over.
  // Errors: the runtime's, where no event can be recorded. Whoever takes the block next waits for the device.
  void use(const void* p, DeviceRuntime::StreamHandle stream);
  // Waits for nobody.
  void give_back(void* p) noexcept;

  // Returns how many blocks there are, each with an event.
  size_t blocks();

 private:
  // What may still use a block. kEvent: what was queued before its event. kUnknown: that was not recorded.
  enum class User : uint8_t { kNone, kEvent, kUnknown };
  struct Block {
    Block(DeviceRuntime& runtime, int d, int64_t n) : device(d), bytes(n), event(runtime, d) {}
    int device;
    int64_t bytes;
    NativeEvent event;
    User user = User::kNone;
    void* p = nullptr;
  };
  using Blocks = std::list<Block>;  // so that they move without a copy

  Blocks take_free(int device, int64_t bytes);
  void wait_for_user(Block* block);
  Blocks make(int device, int64_t bytes);
  void release_free();

  DeviceRuntime& runtime_;
  const int process_;  // the fork_count() that it was made at
  std::mutex mutex_;
  Blocks taken_, free_;  // free ones in the order of their return
};

}  // namespace gradus::internal
