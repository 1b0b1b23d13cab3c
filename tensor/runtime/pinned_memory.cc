// PinnedMemory: the caching allocator of pinned (page-locked) host memory. A block is in allocated_ or free_.
// Queued copies may use a free block until its event (record_use) has happened. allocate() reuses the
// earliest released block that fits, else allocates memory. Waits run without the mutex.
#include "gradus/tensor/runtime/pinned_memory.h"

#include <algorithm>

#include "gradus/tensor/runtime/fork.h"

namespace gradus::internal {
namespace {

constexpr int64_t kStep = int64_t{64} << 10;  // sizes of blocks are multiples of this number of bytes
// Limits of the cache: if the free blocks that fit a request reach kMaxBytes (but at least kMinBlocks and at most
// kMaxBlocks blocks), allocate() waits for the earliest of them instead of allocating another block.
constexpr int64_t kMaxBytes = int64_t{64} << 20;
constexpr int64_t kMinBlocks = 4, kMaxBlocks = 64;

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

PinnedMemory& PinnedMemory::of(Device device) {
  DeviceRuntime& runtime = runtime_of(device, "pinned memory");
  static auto* const memory = new PinnedMemory(runtime);  // never destroyed: static tensors may use it
  return *memory;
}

PinnedMemory::PinnedMemory(DeviceRuntime& runtime) : runtime_(runtime), process_(fork_count()) {}

void* PinnedMemory::allocate(int device, int64_t bytes) {
  Blocks block = reuse_free(device, bytes);
  if (block.empty()) block = make(device, round_up(bytes, kStep));
  if (block.empty()) {  // memory is short
    release_free();
    block = make(device, round_up(bytes, kStep));
  }
  if (block.empty()) return nullptr;
  void* const p = block.front().p;
  const std::lock_guard lock(mutex_);
  allocated_.splice(allocated_.end(), block);
  return p;
}

void PinnedMemory::record_use(const void* p, DeviceRuntime::StreamHandle stream) {
  Blocks::iterator block;
  {
    const std::lock_guard lock(mutex_);
    block = std::ranges::find(allocated_, p, &Block::p);
    if (block == allocated_.end()) return;
  }
  block->pending_use = PendingUse::kUnknown;  // remains if record() throws
  runtime_.record(block->event.handle(), stream);
  block->pending_use = PendingUse::kEvent;
}

void PinnedMemory::release(void* p) noexcept {
  if (process_ != fork_count()) return;  // in a child of fork(): the memory belongs to the parent
  const std::lock_guard lock(mutex_);
  free_.splice(free_.end(), allocated_, std::ranges::find(allocated_, p, &Block::p));
}

size_t PinnedMemory::blocks() {
  const std::lock_guard lock(mutex_);
  return allocated_.size() + free_.size();
}

// Removes the earliest released block of `bytes` to max(2 * bytes, kStep) bytes from free_, waits until no
// queued work uses the block, and returns it. Returns an empty list if no free block fits, or if the block is
// still in use and the limits of the cache allow to allocate another one.
PinnedMemory::Blocks PinnedMemory::reuse_free(int device, int64_t bytes) {
  Blocks taken;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Block& b) {
      return b.device == device && b.bytes >= bytes && b.bytes <= std::max(2 * bytes, kStep);
    };
    const auto first = std::ranges::find_if(free_, fits);
    if (first == free_.end()) return taken;
    if (first->pending_use == PendingUse::kEvent && first->event.is_done())
      first->pending_use = PendingUse::kNone;
    const int64_t most = std::clamp(kMaxBytes / first->bytes, kMinBlocks, kMaxBlocks);
    if (first->pending_use == PendingUse::kEvent && std::ranges::count_if(free_, fits) < most) return taken;
    taken.splice(taken.end(), free_, first);
  }
  try {
    wait_for_pending_use(&taken.front());
  } catch (...) {
    const std::lock_guard lock(mutex_);
    free_.splice(free_.begin(), taken);
    throw;
  }
  return taken;
}

void PinnedMemory::wait_for_pending_use(Block* block) {
  if (block->pending_use == PendingUse::kEvent) block->event.synchronize();
  if (block->pending_use == PendingUse::kUnknown) runtime_.synchronize_device(block->device);
  block->pending_use = PendingUse::kNone;
}

// Allocates a block. Returns an empty list if memory is short.
PinnedMemory::Blocks PinnedMemory::make(int device, int64_t bytes) {
  Blocks made;
  made.emplace_back(runtime_, device, bytes);
  made.front().p = runtime_.allocate_pinned(device, bytes);
  if (!made.front().p) made.clear();
  return made;
}

// Frees all free blocks. No work may use them then: free_pinned first waits until all devices are idle.
void PinnedMemory::release_free() {
  Blocks free;
  {
    const std::lock_guard lock(mutex_);
    free.swap(free_);
  }
  try {
    for (; !free.empty(); free.pop_front()) runtime_.free_pinned(free.front().p);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    free_.splice(free_.begin(), free);
    throw;
  }
}

}  // namespace gradus::internal
