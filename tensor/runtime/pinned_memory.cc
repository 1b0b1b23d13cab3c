#include "gradus/tensor/runtime/pinned_memory.h"

#include <algorithm>

#include "gradus/tensor/runtime/fork.h"

namespace gradus::internal {
namespace {

constexpr int64_t kStep = int64_t{64} << 10;

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

PinnedMemory& PinnedMemory::of(Device device) {
  DeviceRuntime& runtime = runtime_of(device, "pinned memory");
  static auto* const memory = new PinnedMemory(runtime);  // tensors in it may be destroyed later
  return *memory;
}

PinnedMemory::PinnedMemory(DeviceRuntime& runtime) : runtime_(runtime), process_(fork_count()) {}

void* PinnedMemory::take(int device, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Block* block = find_free(bytes);
  if (!block) block = make(device, round_up(bytes, kStep));
  if (!block) {
    release_free();
    block = make(device, round_up(bytes, kStep));
  }
  if (!block) return nullptr;
  block->is_taken = true;
  block->until = {};
  return block->p;
}

void PinnedMemory::use(const void* p, const Event& until) {
  const std::lock_guard lock(mutex_);
  if (Block* const block = find(p)) block->until = until;
}

void PinnedMemory::give_back(void* p) noexcept {
  if (process_ != fork_count()) return;  // the parent's
  const std::lock_guard lock(mutex_);
  find(p)->is_taken = false;
}

PinnedMemory::Block* PinnedMemory::find(const void* p) {
  const auto found = std::ranges::find(blocks_, p, &Block::p);
  return found == blocks_.end() ? nullptr : &*found;
}

// The smallest one that is large enough, and not more than twice as large.
PinnedMemory::Block* PinnedMemory::find_free(int64_t bytes) {
  Block* best = nullptr;
  for (Block& b : blocks_) {
    const bool fits = !b.is_taken && b.bytes >= bytes && b.bytes <= std::max(2 * bytes, kStep);
    if (fits && (!best || b.bytes < best->bytes) && b.until.done()) best = &b;
  }
  return best;
}

PinnedMemory::Block* PinnedMemory::make(int device, int64_t bytes) {
  blocks_.reserve(blocks_.size() + 1);  // so that nothing after it can fail
  void* const p = runtime_.allocate_pinned(device, bytes);
  return p ? &blocks_.emplace_back(Block{p, bytes}) : nullptr;
}

// The runtime waits until all devices are idle: nothing uses these blocks any more.
void PinnedMemory::release_free() {
  for (size_t i = blocks_.size(); i-- > 0;) {
    if (blocks_[i].is_taken) continue;
    runtime_.free_pinned(blocks_[i].p);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace gradus::internal
