// Guarded allocation for debugging, as Electric Fence: each block has its own mmap, with an inaccessible page
// (PROT_NONE) on either side. A block touches the guard page on one side, where accesses out of bounds fault
// at once. The rest of the page on the other side is filled with 0xff, and checked by the free. Thread-safe.
#include "gradus/tensor/runtime/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "gradus/tensor/base/error.h"

namespace gradus {
namespace {

enum class Guard { kOff, kAfter, kBefore };  // the side on which a block touches a guard page

Guard guard() {
  static const Guard mode = [] {
    const char* value = std::getenv("GRADUS_GUARD");
    const std::string_view v = value ? value : "";
    if (v.empty() || v == "0") return Guard::kOff;
    if (v == "1" || v == "after") return Guard::kAfter;
    if (v == "before") return Guard::kBefore;
    throw ValueError("GRADUS_GUARD", "expected 0, 1, after or before, got '", v.substr(0, 40), "'");
  }();
  return mode;
}

constexpr unsigned char kFill = 0xff;

std::atomic<int64_t> blocks = 0;

int64_t page_size() {
  static const int64_t size = sysconf(_SC_PAGESIZE);
  return size;
}

int64_t pages_of(int64_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

}  // namespace

bool is_guarding() { return guard() != Guard::kOff; }

int64_t guarded_blocks() { return blocks; }

void* map_guarded(int64_t bytes) {
  if (bytes > INT64_MAX - 3 * page_size()) return nullptr;
  const int64_t usable = pages_of(bytes), all = usable + 2 * page_size();
  void* mapped = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* first = static_cast<char*>(mapped) + page_size();
  if (mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, all);
    return nullptr;
  }
  std::memset(first, kFill, usable);
  ++blocks;
  return guard() == Guard::kBefore ? first : first + usable - bytes;
}

void unmap_guarded(void* p, int64_t bytes) noexcept {
  const int64_t usable = pages_of(bytes), slack = usable - bytes;
  char* block = static_cast<char*>(p);
  const bool before = guard() == Guard::kBefore;
  char* first = before ? block : block - slack;
  const auto* rest = reinterpret_cast<const unsigned char*>(before ? block + bytes : first);
  for (int64_t i = 0; i < slack; ++i)
    if (rest[i] != kFill) {
      std::fprintf(stderr, "gradus: GRADUS_GUARD: something wrote %lld bytes %s a block of %lld bytes\n",
                   static_cast<long long>(before ? i + 1 : slack - i),
                   before ? "behind the end of" : "before", static_cast<long long>(bytes));
      std::abort();
    }
  munmap(first - page_size(), usable + 2 * page_size());
  --blocks;
}

}  // namespace gradus
