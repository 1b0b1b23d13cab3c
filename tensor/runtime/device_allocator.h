// The caching allocator of a device whose memory the host cannot touch.
//
// Note [Blocks of a device]
// The device gives segments. A segment belongs to a stream and is cut into blocks; what is known of a block
// stands in the host's memory. A freed block joins its free neighbors. It is used again at once on its own
// stream: what is queued there later runs later. Where it was used on other streams too (use()), it waits
// until these have done what was queued on them when it was freed. The events of each stream have a list of their
// own, so a stream that is behind delays the blocks that it uses and no others. A segment that is wholly free moves to
// another stream when its own is idle, or, if memory is short, when the new stream waits for its own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/memory_counts.h"

namespace gradus::internal {

class DeviceAllocator {
 public:
  using StreamRef = std::shared_ptr<NativeStream>;

  // Returns the allocator of a device.
  // Errors: as runtime_of.
  static DeviceAllocator& of(Device device);
  // Returns the allocator if there is one already, else null.
  static DeviceAllocator* find(Device device) noexcept;
  // Returns the devices that have an allocator.
  static std::vector<Device> devices();

  DeviceAllocator(DeviceRuntime& runtime, Device device);

  // Returns a block of at least `bytes` (> 0) for work on `stream`, aligned to 512 bytes.
  // Errors: OutOfMemoryError with what is held, by op.
  void* allocate(int64_t bytes, const StreamRef& stream);
  void deallocate(void* p) noexcept;
  // Notes that work queued on `stream` uses the block that begins at p. What is no block is passed over.
  void use(const void* p, const StreamRef& stream);
  // Returns whether no work on other streams uses the block that begins at p. True for what is no block.
  bool is_only_used_on(const void* p, const StreamRef& stream);
  // Returns cached segments to the device. Waits for it.
  void release_cached();

  // Calls f(counts) with the lock held.
  template <class F> auto counts(F&& f) {
    std::lock_guard lock(mutex_);
    return f(counts_);
  }

  // Gives each block memory of its own, as large as was asked for, and keeps none. For tests: the emulated
  // device then sees each access beyond a block, and each read of what nobody wrote.
  void keep_nothing(bool on) { keeps_nothing_ = on; }

  // Returns the bytes of all segments.
  int64_t held_bytes() {
    return counts([](const MemoryStats& s) { return s.live_bytes + s.cached_bytes; });
  }

 private:
  enum class Kind : uint8_t { kSmall, kLarge, kOnly };  // kOnly: one block, which is not kept
  struct Segment {
    Kind kind;
    StreamRef stream;
  };
  struct Block {
    char* p;
    int64_t bytes;
    Segment* segment;
    Block *before = nullptr, *behind = nullptr;  // neighbors in the segment
    bool is_free = false;
    const char* op = nullptr;      // that asked for it; null: none
    std::vector<StreamRef> users;  // other streams that use it
    int events = 0;                // of a freed block: those of other streams that have yet to happen

    bool is_whole_segment() const { return !before && !behind; }
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->p < b->p;
    }
  };
  // The free blocks of a stream, small and large ones.
  struct Pool {
    std::set<Block*, BySize> free[2];
  };
  // A freed block, and when one of its other streams has used it.
  struct Pending {
    Block* block;
    std::unique_ptr<NativeEvent> event;
  };

  Block* take_free(int64_t bytes, Kind kind, const StreamRef& stream);
  Block* take_from_other_stream(int64_t bytes, Kind kind, const StreamRef& stream, bool may_wait);
  Block* new_segment(int64_t bytes, Kind kind, const StreamRef& stream);
  void cut(Block* block, int64_t bytes);
  void put_free(Block* block);
  void join(Block* first);
  void give_back(Block* block);
  void free_up(Block* block);
  void count_event(Block* block);
  void collect_pending(bool wait);
  void release_all();
  std::string held_by_op() const;

  DeviceRuntime& runtime_;
  const Device device_;
  const int process_;  // the fork_count() that it was made at
  bool keeps_nothing_;
  std::mutex mutex_;
  MemoryCounts counts_;
  std::unordered_map<const void*, Block*> live_;  // by address
  std::unordered_map<const NativeStream*, Pool> pools_;
  // Freed blocks that other streams may still use, by these streams, in the order of freeing.
  std::unordered_map<const NativeStream*, std::deque<Pending>> pending_;
  std::deque<Block*>
      until_idle_;  // those for which an event could not be recorded: wait for the whole device
};

}  // namespace gradus::internal
