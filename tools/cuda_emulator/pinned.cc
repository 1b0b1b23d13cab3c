// Implementation of pinned.h: a map of disjoint address ranges.
#include "gradus/tools/cuda_emulator/pinned.h"

#include <cstdint>
#include <map>
#include <mutex>

namespace gradus::cuda::emulated {
namespace {

std::mutex mutex;
std::map<uintptr_t, size_t> ranges;  // begin, bytes

}  // namespace

bool pin(const void* p, size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto a = reinterpret_cast<uintptr_t>(p);
  auto behind = ranges.lower_bound(a);
  if (behind != ranges.end() && behind->first < a + bytes) return false;
  if (behind != ranges.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second > a) return false;
  }
  ranges[a] = bytes;
  return true;
}

size_t unpin(const void* p) {
  const std::lock_guard lock(mutex);
  const auto at = ranges.find(reinterpret_cast<uintptr_t>(p));
  if (at == ranges.end()) return 0;
  const size_t bytes = at->second;
  ranges.erase(at);
  return bytes;
}

bool is_pinned(const void* p, size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto a = reinterpret_cast<uintptr_t>(p);
  auto at = ranges.upper_bound(a);
  if (at == ranges.begin()) return false;
  --at;
  return a - at->first < at->second && bytes <= at->second - (a - at->first);
}

bool is_pinned(const void* p) { return is_pinned(p, 1); }

size_t count_pinned() {
  const std::lock_guard lock(mutex);
  return ranges.size();
}

}  // namespace gradus::cuda::emulated
