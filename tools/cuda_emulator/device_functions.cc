// Implementation of device_functions.h: forwards each call to the block that runs on this thread of the host.
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "gradus/tools/cuda_emulator/block.h"

namespace gradus::cuda::emulated {

unsigned thread_index() { return static_cast<unsigned>(Block::running()->thread_index()); }
unsigned block_index() { return Block::running()->index(); }
unsigned block_threads() { return static_cast<unsigned>(Block::running()->launch().threads); }
unsigned grid_blocks() { return static_cast<unsigned>(Block::running()->launch().blocks); }

void* shared_memory(size_t bytes, const std::source_location& at) {
  return Block::running()->shared_memory(bytes, SourceLocation::of(at));
}
void sync_block(const std::source_location& at) { Block::running()->wait_for_block(SourceLocation::of(at)); }
void sync_warp(uint32_t mask, const std::source_location& at) {
  Block::running()->meet(Meeting::kWait, mask, 0, 0, SourceLocation::of(at));
}
uint64_t shuffle(uint32_t mask, uint64_t value, int from, const std::source_location& at) {
  return Block::running()->meet(Meeting::kShuffle, mask, value, from, SourceLocation::of(at));
}
uint32_t ballot(uint32_t mask, bool value, const std::source_location& at) {
  return static_cast<uint32_t>(
      Block::running()->meet(Meeting::kBallot, mask, value, 0, SourceLocation::of(at)));
}
void vector_access(const void* p, size_t bytes, bool write, const std::source_location& at) {
  Block::running()->access(p, bytes, write ? Access::kWrite : Access::kRead, true, SourceLocation::of(at));
}
void need_global(const void* p, const std::source_location& at) {
  Block::running()->need_global(p, SourceLocation::of(at));
}
void atomic_access(const void* p, size_t bytes, const std::source_location& at) {
  Block::running()->access(p, bytes, Access::kAtomic, true, SourceLocation::of(at));
}

}  // namespace gradus::cuda::emulated
