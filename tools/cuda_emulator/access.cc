// Checks each memory access of a kernel that the compiler's hooks (hooks.cc) report: alignment, bounds, host
// and peer memory, races, uninitialized reads. Implements Block::access().
#include <link.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "gradus/tools/cuda_emulator/block.h"
#include "gradus/tools/cuda_emulator/counters.h"
#include "gradus/tools/cuda_emulator/pinned.h"

namespace gradus::cuda::emulated {
namespace {

struct Range {
  uintptr_t begin, end;
};

// Returns whether an address lies in a segment of the program or of a library, where constants of kernels
// are.
bool is_in_a_program(uintptr_t a) {
  static const std::vector<Range> ranges = [] {
    std::vector<Range> found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* into) {
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (const auto& segment = info->dlpi_phdr[i]; segment.p_type == PT_LOAD) {
              const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
              static_cast<std::vector<Range>*>(into)->push_back({begin, begin + segment.p_memsz});
            }
          return 0;
        },
        &found);
    return found;
  }();
  return std::any_of(ranges.begin(), ranges.end(), [=](const Range& r) { return a >= r.begin && a < r.end; });
}

// Returns whether all of the bytes are written.
bool are_all_written(const Byte* state, size_t bytes) {
  const auto are_written = [state](auto word) {
    constexpr uint64_t kWritten = 0x0101010101010101u * static_cast<uint64_t>(Byte::kWritten);
    std::memcpy(&word, state, sizeof word);
    return word == static_cast<decltype(word)>(kWritten);
  };
  switch (bytes) {
    case 1:
      return *state == Byte::kWritten;
    case 2:
      return are_written(uint16_t{});
    case 4:
      return are_written(uint32_t{});
    case 8:
      return are_written(uint64_t{});
    default:
      return std::all_of(state, state + bytes, [](Byte b) { return b == Byte::kWritten; });
  }
}

}  // namespace

// Returns whether an address outside of device and shared memory is allowed: the thread's stack, pinned
// memory, and, for reads, the launch's arguments and constants.
bool Block::is_own_or_constant(const void* address, size_t bytes, Access access) const {
  if (self_->fiber->holds(address)) return true;
  const auto a = reinterpret_cast<uintptr_t>(address),
             arguments = reinterpret_cast<uintptr_t>(launch_->arguments);
  if (access == Access::kRead) {
    if (a - arguments < launch_->argument_bytes) return true;
    if (is_in_a_program(a)) return true;
  }
  return is_pinned(address, bytes);
}

// Reports a race of this access with earlier ones of the same launch (of the same block, in shared memory),
// which `stamp` identifies.
void Block::check_shadow(Shadow* shadow, size_t offset, uint32_t stamp, size_t bytes, Access access,
                         const SourceLocation& location, const void* address) {
  const Conflict conflict = shadow->enter(offset, bytes, stamp, clock(), access);
  if (conflict.kind == Conflict::kNone) return;
  const bool is_write = conflict.kind == Conflict::kEarlierWrite;
  const char* mine = access == Access::kRead ? "reads" : access == Access::kWrite ? "writes" : "updates";
  stop(FaultKind::kRace,
       std::string("a race: ") + mine + " what " + name_of_thread(conflict.thread) +
           (is_write ? " wrote" : " read") + ", and nothing orders the two",
       location, name_of_memory(static_cast<const char*>(address) + (conflict.at - offset)));
}

void Block::need_global(const void* address, const SourceLocation& location) {
  if (self_ && is_shared(address))
    stop(FaultKind::kSharedMemory, "store_vector writes shared memory", location, name_of_memory(address));
}

void Block::access(const void* address, size_t bytes, Access access, bool is_vector,
                   const SourceLocation& location) {
  if (!self_) return;
  const char* const p = static_cast<const char*>(address);
  const char* const verb = access == Access::kRead ? "reads" : "writes";
  if (is_vector && reinterpret_cast<uintptr_t>(p) % bytes)
    stop(FaultKind::kMisaligned,
         std::string(verb) + " a vector of " + std::to_string(bytes) +
             " bytes at an address that is not aligned to it",
         location, name_of_memory(p));

  Byte* state;
  Shadow* shadow;
  size_t offset;
  uint32_t stamp = launch_stamp_;
  const bool shared = is_shared(p);
  if (memory_->is_seen_by_kernels(p)) {
    offset = memory_->offset(p);
    state = memory_->state(offset), shadow = memory_->shadow();
  } else if (shared) {
    if (static_cast<size_t>(p - shared_) + bytes > static_cast<size_t>(launch_->shared_bytes))
      stop(FaultKind::kOutOfBounds,
           std::string(verb) + " beyond the " + std::to_string(launch_->shared_bytes) +
               " bytes of shared memory",
           location, name_of_memory(p));
    offset = static_cast<size_t>(p - shared_);
    state = shared_state_ + offset, shadow = &shared_shadow_, stamp = shared_stamp_;
  } else {
    if (is_own_or_constant(p, bytes, access)) return;
    const int device = device_whose_kernels_see(p);
    if (device < 0)
      stop(FaultKind::kHostMemory, std::string(verb) + " memory that is not the device's", location);
    if (!memory_->peers.contains(device))
      stop(FaultKind::kOutOfBounds, std::string(verb) + " memory of a device that is no peer", location,
           name_of_memory(p));
    DeviceMemory& peer = *memory_of(device);
    offset = peer.offset(p);
    state = peer.state(offset), shadow = peer.shadow();
  }

  const bool written = are_all_written(state, bytes);
  for (size_t i = 0; i < bytes && !written; ++i)
    if (state[i] == Byte::kFree)
      stop(FaultKind::kOutOfBounds, std::string(verb) + " outside of every allocation", location,
           name_of_memory(p + i));
  // In builds with a sanitizer only accesses to vectors are reported, so races are not checked.
  if constexpr (kFresh == Byte::kUnwritten) check_shadow(shadow, offset, stamp, bytes, access, location, p);
  if (access != Access::kWrite)
    for (size_t i = 0; i < bytes && !written; ++i)
      if (state[i] == Byte::kUnwritten)
        stop(FaultKind::kUnwritten, "reads memory that nobody wrote", location, name_of_memory(p + i));
  if (access != Access::kRead && !written) std::fill_n(state, bytes, Byte::kWritten);
  if (Counters* counters = Counters::active())
    counters->count(location, self_->index,
                    shared ? static_cast<uintptr_t>(p - shared_) : reinterpret_cast<uintptr_t>(p), bytes,
                    access, shared);
}

}  // namespace gradus::cuda::emulated
