// DeviceAllocator: the caching allocator of one GPU's memory (Note [Blocks of a device] in the header;
// similar to PyTorch's CUDACachingAllocator). Blocks of at most 1 MiB are cut from segments of 2 MiB, larger
// ones from segments of 20 MiB or of their own size, by best fit in the pool of their stream. Sizes are
// multiples of 512 bytes. Without caching (guarded memory) each block is a device allocation of its exact size. A
// private member is called with mutex_ held.
#include "gradus/tensor/runtime/device_allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <string_view>
#include <utility>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/guarded_memory.h"

namespace gradus::internal {
namespace {

constexpr int64_t kAlignment = 512;                // of addresses and sizes, in bytes
constexpr int64_t kSmallLimit = int64_t(1) << 20;  // maximum bytes of a small block
constexpr int64_t kSmallSegment = int64_t(2) << 20;
constexpr int64_t kLargeSegment = int64_t(20) << 20;  // for blocks of up to half its size
constexpr int64_t kSegmentStep = int64_t(2) << 20;    // sizes of other segments are multiples of it
constexpr size_t kMaxDevices = 64;

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// By device index; null: not used yet. Never destroyed, because static tensors may be destroyed later.
constinit std::array<std::atomic<DeviceAllocator*>, kMaxDevices> allocators{};

}  // namespace

DeviceAllocator* DeviceAllocator::find(Device device) noexcept {
  return allocators[static_cast<size_t>(device.index)];
}

DeviceAllocator& DeviceAllocator::of(Device device) {
  DeviceRuntime& runtime = runtime_of(device, "allocate");
  if (DeviceAllocator* made = find(device)) return *made;
  static std::mutex making;
  const std::lock_guard lock(making);
  auto& place = allocators[static_cast<size_t>(device.index)];
  if (!place) place = new DeviceAllocator(runtime, device);
  return *place;
}

std::vector<Device> DeviceAllocator::devices() {
  std::vector<Device> all;
  for (const auto& a : allocators)
    if (const DeviceAllocator* made = a) all.push_back(made->device_);
  return all;
}

DeviceAllocator::DeviceAllocator(DeviceRuntime& runtime, Device device)
    : runtime_(runtime), device_(device), process_(fork_count()), caching_disabled_(is_guarding()) {}

// Tries, in this order: a free block of the stream; an idle stream's segment; a new segment; a busy stream's
// segment, after waiting for the stream on the device; freed blocks, after waiting on the host for their
// events; a new segment after all free segments have been returned to the device.
void* DeviceAllocator::allocate(int64_t bytes, const StreamRef& stream) {
  const std::lock_guard lock(mutex_);
  const bool is_cached = !caching_disabled_ || stream->keeps_memory();
  const int64_t size = is_cached ? round_up(bytes, kAlignment) : bytes;
  const Kind kind = !is_cached ? Kind::kUncached : size <= kSmallLimit ? Kind::kSmall : Kind::kLarge;
  collect_pending(false);
  Block* block = take_free(size, kind, stream);
  if (!block) block = take_from_other_stream(size, kind, stream, false);
  if (!block) block = new_segment(size, kind, stream);
  if (!block) block = take_from_other_stream(size, kind, stream, true);
  if (!block) {
    collect_pending(true);
    block = take_free(size, kind, stream);
  }
  if (!block) {
    release_all();
    block = new_segment(size, kind, stream);
  }
  if (!block)
    throw OutOfMemoryError("allocate", "out of memory on ", device_, ": asked for ", bytes, " bytes; ",
                           to_string(counts_), live_bytes_by_op());
  split(block, size);
  live_.emplace(block->p, block);
  block->op = called_op;
  ++counts_.allocations;
  counts_.cached_bytes -= block->bytes;
  counts_.add_live(block->bytes);
  return block->p;
}

// Records an event on each other stream that used the block; the block is free after these events, or at once
// if there are none. If an event cannot be recorded, the block is free after a device synchronization.
void DeviceAllocator::deallocate(void* p) noexcept {
  if (process_ != fork_count()) return;  // in a child of fork(): the memory belongs to the parent
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(p);
  Block* const block = found->second;
  live_.erase(found);
  counts_.live_bytes -= block->bytes;
  counts_.cached_bytes += block->bytes;
  bool is_known = true;  // the events cover all uses
  for (const StreamRef& other : std::exchange(block->other_streams, {})) {
    try {
      if (other->is_capturing()) {  // an event would be part of the graph
        freed_in_capture_[other.get()].push_back(block);
        ++block->events;
        continue;
      }
      pending_[other.get()].push_back({block, other->record()});
      ++block->events;
    } catch (const std::exception&) {
      is_known = false;
    }
  }
  if (is_known && block->events == 0) {
    try {
      return make_free(block);
    } catch (const Error&) {
      is_known = false;
    }
  }
  if (is_known) return;
  ++block->events;
  freed_without_event_.push_back(block);
}

void DeviceAllocator::capture_ended(const StreamRef& stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = freed_in_capture_.find(stream.get());
  if (found == freed_in_capture_.end()) return;
  const std::vector<Block*> blocks = std::move(found->second);
  freed_in_capture_.erase(found);
  for (Block* const block : blocks) {
    try {
      pending_[stream.get()].push_back({block, stream->record()});
    } catch (const std::exception&) {
      freed_without_event_.push_back(block);
    }
  }
}

void DeviceAllocator::record_stream(const void* p, const StreamRef& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(p);
  if (found == live_.end() || found->second->segment->stream == stream) return;
  auto& streams = found->second->other_streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

bool DeviceAllocator::is_only_used_on(const void* p, const StreamRef& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(p);
  return found == live_.end() ||
         (found->second->segment->stream == stream && found->second->other_streams.empty());
}

void DeviceAllocator::release_cached() {
  const std::lock_guard lock(mutex_);
  collect_pending(true);
  release_all();
}

// Returns the smallest free block of the stream that is large enough (best fit), or null.
DeviceAllocator::Block* DeviceAllocator::take_free(int64_t bytes, Kind kind, const StreamRef& stream) {
  if (kind == Kind::kUncached) return nullptr;
  const auto pool = pools_.find(stream.get());
  if (pool == pools_.end()) return nullptr;
  auto& free = pool->second.free[static_cast<int>(kind)];
  Block wanted{nullptr, bytes, nullptr};
  const auto found = free.lower_bound(&wanted);
  if (found == free.end()) return nullptr;
  Block* const block = *found;
  free.erase(found);
  block->is_free = false;
  return block;
}

// Moves a completely free segment of another stream to `stream`, and returns its block, or null. Without
// wait_for_owner, the other stream must be idle; with it, `stream` waits for the other stream's work.
DeviceAllocator::Block* DeviceAllocator::take_from_other_stream(int64_t bytes, Kind kind,
                                                                const StreamRef& stream,
                                                                bool wait_for_owner) {
  if (kind == Kind::kUncached) return nullptr;
  for (auto& [owner, pool] : pools_) {
    if (owner == stream.get()) continue;
    auto& free = pool.free[static_cast<int>(kind)];
    const auto fits = [&](const Block* b) { return b->bytes >= bytes && b->is_whole_segment(); };
    const auto found = std::find_if(free.begin(), free.end(), fits);
    if (found == free.end()) continue;  // the stream of an empty pool may be destroyed
    if (owner->keeps_memory()) continue;
    if (wait_for_owner)
      stream->wait(*owner->record());
    else if (!owner->is_idle())
      continue;
    Block* const block = *found;
    free.erase(found);
    block->is_free = false;
    block->segment->stream = stream;  // may destroy the other stream: do not use `owner` and `pool` below
    return block;
  }
  return nullptr;
}

// Allocates a segment from the device and returns its only block, not in a pool; null if memory is short.
DeviceAllocator::Block* DeviceAllocator::new_segment(int64_t bytes, Kind kind, const StreamRef& stream) {
  std::vector<int64_t> sizes = {round_up(bytes, kSegmentStep)};
  if (kind == Kind::kUncached) sizes = {bytes};
  if (kind == Kind::kSmall) sizes = {kSmallSegment};
  if (kind == Kind::kLarge && bytes <= kLargeSegment / 2) sizes.insert(sizes.begin(), kLargeSegment);
  for (const int64_t size : sizes) {
    auto segment = std::make_unique<Segment>(Segment{kind, stream});
    auto block = std::make_unique<Block>(Block{nullptr, size, segment.get()});
    if (kind != Kind::kUncached)
      pools_[stream.get()];  // allocates the entry now, so that nothing below can throw
    ++counts_.system_calls;
    block->p = static_cast<char*>(runtime_.allocate(device_.index, size));
    if (!block->p) continue;
    counts_.cached_bytes += size;
    segment.release();
    return block.release();
  }
  return nullptr;
}

// Splits the block after `bytes` and makes the rest a free block, if the rest is large enough.
void DeviceAllocator::split(Block* block, int64_t bytes) {
  const int64_t rest = block->bytes - bytes;
  if (rest < (block->segment->kind == Kind::kLarge ? kSmallLimit : kAlignment)) return;
  auto* const other = new Block{block->p + bytes, rest, block->segment, block, block->next};
  if (other->next) other->next->previous = other;
  block->next = other;
  block->bytes = bytes;
  insert_free(other);
}

// Merges a block with its free neighbors and inserts it into the pool of its stream.
void DeviceAllocator::insert_free(Block* block) {
  block->is_free = true;
  block->op = nullptr;
  block->events = 0;
  auto& free = pools_[block->segment->stream.get()].free[static_cast<int>(block->segment->kind)];
  if (block->next && block->next->is_free) {
    free.erase(block->next);
    merge(block);
  }
  if (block->previous && block->previous->is_free) {
    block = block->previous;
    free.erase(block);
    merge(block);
  }
  free.insert(block);
}

void DeviceAllocator::merge(Block* first) {
  Block* const second = first->next;
  first->bytes += second->bytes;
  first->next = second->next;
  if (first->next) first->next->previous = first;
  delete second;
}

// Returns a segment to the device and deletes its records. `block` is its only block and in no pool.
void DeviceAllocator::release(Block* block) {
  runtime_.free(device_.index, block->p);
  counts_.cached_bytes -= block->bytes;
  delete block->segment;
  delete block;
}

// Makes an unused block available to its stream, or returns it to the device.
void DeviceAllocator::make_free(Block* block) {
  if (block->segment->kind == Kind::kUncached)
    release(block);
  else
    insert_free(block);
}

// Counts down the pending events of a freed block, and frees the block after the last one. If freeing the
// block throws, the count stays, and the call is repeated later.
void DeviceAllocator::count_event(Block* block) {
  if (block->events == 1) return make_free(block);
  --block->events;
}

// Frees the blocks whose events have happened: for each stream in order of freeing, up to the first pending
// event. `wait`: waits for all events.
void DeviceAllocator::collect_pending(bool wait) {
  for (auto& [stream, list] : pending_) {
    while (!list.empty()) {
      const Pending& first = list.front();
      if (wait)
        first.event->synchronize();
      else if (!first.event->is_done())
        break;
      count_event(first.block);
      list.pop_front();
    }
  }
  std::erase_if(pending_, [](const auto& entry) { return entry.second.empty(); });
  if (!wait || freed_without_event_.empty()) return;
  runtime_.synchronize_device(device_.index);
  while (!freed_without_event_.empty()) {
    count_event(freed_without_event_.front());
    freed_without_event_.pop_front();
  }
}

// Returns all completely free segments to the device.
void DeviceAllocator::release_all() {
  for (auto& [stream, pool] : pools_) {
    for (auto& free : pool.free) {
      for (auto at = free.begin(); at != free.end();) {
        Block* const block = *at;
        if (!block->is_whole_segment() || block->segment->stream->keeps_memory()) {
          ++at;
          continue;
        }
        at = free.erase(at);
        try {
          release(block);
        } catch (...) {
          free.insert(block);
          throw;
        }
      }
    }
  }
  std::erase_if(
      pools_, [](const auto& entry) { return entry.second.free[0].empty() && entry.second.free[1].empty(); });
}

// Returns "; held by conv2d: 1024 bytes in 1 block, ..." for the 5 ops with the most bytes, for errors.
std::string DeviceAllocator::live_bytes_by_op() const {
  std::map<std::string_view, std::pair<int64_t, int64_t>> ops;  // bytes and blocks
  for (const auto& [p, block] : live_) {
    auto& [bytes, blocks] = ops[block->op ? block->op : "outside of ops"];
    bytes += block->bytes, ++blocks;
  }
  std::vector<std::pair<std::string_view, std::pair<int64_t, int64_t>>> sorted(ops.begin(), ops.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  std::string text = sorted.empty() ? "" : "; held by";
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(kShown, sorted.size()); ++i)
    text += concat(i ? ", " : " ", sorted[i].first, ": ", sorted[i].second.first, " bytes in ",
                   sorted[i].second.second, sorted[i].second.second == 1 ? " block" : " blocks");
  return text;
}

}  // namespace gradus::internal

namespace gradus {

bool is_used_on_other_streams(Device device, const void* p) {
  if (device.type != DeviceType::kCUDA) return false;
  auto* const allocator = internal::DeviceAllocator::find(device);
  return allocator && !allocator->is_only_used_on(p, internal::current_native_stream(device));
}

}  // namespace gradus
