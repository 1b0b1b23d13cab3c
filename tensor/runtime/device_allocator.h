// The stream-ordered caching allocator of GPU memory, similar to PyTorch's CUDACachingAllocator.
//
// Note [Blocks of a device]
// Memory is taken from the device in segments. A segment belongs to a stream and is split into blocks, whose
// records are in host memory. A freed block is merged with free adjacent blocks. It is reused at once on its own
// stream, because kernels of a stream run in order. If other streams used the block too (record_stream(), like
// Tensor.record_stream in PyTorch), an event is recorded on each of them when the block is freed, and the block is
// reused after these events. Each stream has its own list of events, so a slow stream delays only the blocks that
// it uses. A completely free segment moves to another stream if its own stream is idle or, if memory is short,
// after the new stream waits for its own.
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

// The allocator of one device. Thread-safe.
class DeviceAllocator {
 public:
  using StreamRef = std::shared_ptr<NativeStream>;

  // Returns the allocator of a device.
  // Errors: as runtime_of.
  static DeviceAllocator& of(Device device);
  // Returns the allocator of a GPU, or null if it was not used yet.
  static DeviceAllocator* find(Device device) noexcept;
  // Returns the devices that have an allocator.
  static std::vector<Device> devices();

  DeviceAllocator(DeviceRuntime& runtime, Device device);

  // Returns a block of at least `bytes` (> 0) for work on `stream`, aligned to 512 bytes.
  // Errors: OutOfMemoryError with the live bytes of each op.
  void* allocate(int64_t bytes, const StreamRef& stream);
  // Frees a live block. Queued work may still use it: see the note above. Does nothing in a child of fork().
  void deallocate(void* p) noexcept;
  // Records that work queued on `stream` uses the block that begins at p. Ignored if p is not the start of a live
  // block.
  void record_stream(const void* p, const StreamRef& stream);
  // Frees the blocks that were deallocated during a capture that has ended, and that work of `stream` in it uses.
  void capture_ended(const StreamRef& stream) noexcept;
  // Returns whether no other stream uses the block that begins at p. True if p is not the start of a live block.
  bool is_only_used_on(const void* p, const StreamRef& stream);
  // Returns cached segments to the device. Waits until the device is idle.
  void release_cached();

  // Calls f(counts) with the lock held.
  template <class F> auto counts(F&& f) {
    std::lock_guard lock(mutex_);
    return f(counts_);
  }

  // Disables caching: each block is a device allocation of exactly the requested size. For tests: the emulated
  // device then detects accesses out of bounds and reads of uninitialized memory. Not thread-safe.
  void disable_caching(bool on) { caching_disabled_ = on; }

  // Returns the bytes of all segments.
  int64_t reserved_bytes() {
    return counts([](const MemoryStats& s) { return s.live_bytes + s.cached_bytes; });
  }

 private:
  enum class Kind : uint8_t { kSmall, kLarge, kUncached };  // kUncached: a single block, not cached
  struct Segment {
    Kind kind;
    StreamRef stream;
  };
  struct Block {
    char* p;
    int64_t bytes;
    Segment* segment;
    Block *previous = nullptr, *next = nullptr;  // adjacent blocks of the segment
    bool is_free = false;
    const char* op = nullptr;              // the op that allocated it; null: none
    std::vector<StreamRef> other_streams;  // other streams that use it
    int events = 0;                        // of a freed block: events of other streams that are still pending

    bool is_whole_segment() const { return !previous && !next; }
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->p < b->p;
    }
  };
  // The free blocks of a stream, by Kind: kSmall, kLarge.
  struct Pool {
    std::set<Block*, BySize> free[2];
  };
  // A freed block with the event after which one other stream no longer uses it.
  struct Pending {
    Block* block;
    std::unique_ptr<NativeEvent> event;
  };

  Block* take_free(int64_t bytes, Kind kind, const StreamRef& stream);
  Block* take_from_other_stream(int64_t bytes, Kind kind, const StreamRef& stream, bool wait_for_owner);
  Block* new_segment(int64_t bytes, Kind kind, const StreamRef& stream);
  void split(Block* block, int64_t bytes);
  void insert_free(Block* block);
  void merge(Block* first);
  void release(Block* block);
  void make_free(Block* block);
  void count_event(Block* block);
  void collect_pending(bool wait);
  void release_all();
  std::string live_bytes_by_op() const;

  DeviceRuntime& runtime_;
  const Device device_;
  const int process_;  // fork_count() at construction
  bool caching_disabled_;
  std::mutex mutex_;
  MemoryCounts counts_;
  std::unordered_map<const void*, Block*> live_;  // by address
  std::unordered_map<const NativeStream*, Pool> pools_;
  // Freed blocks that other streams may still use: for each of these streams, in order of freeing.
  std::unordered_map<const NativeStream*, std::deque<Pending>> pending_;
  // Blocks that were freed while one of their other streams was captured, by that stream.
  std::unordered_map<const NativeStream*, std::vector<Block*>> freed_in_capture_;
  // Freed blocks whose event could not be recorded: reused after a device synchronization.
  std::deque<Block*> freed_without_event_;
};

}  // namespace gradus::internal
