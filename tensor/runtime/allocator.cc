// The caching allocator of CPU devices, and the public functions for all devices. Freed blocks are kept in
// free lists by size and reused; memory returns to the system only in empty_cache() or when the system has no
// more. The meta device only counts bytes. GPUs have internal::DeviceAllocator. Any thread may allocate and
// free; a spin lock guards each device.
#include "gradus/tensor/runtime/allocator.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/runtime/backlog.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tensor/runtime/guarded_memory.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tensor/runtime/memory_counts.h"

namespace gradus {
namespace {

// Note [Size classes]
// Small requests (up to 1 MiB) are rounded up to multiples of 64 bytes up to 1 KiB, and to 16 steps per power
// of two above. Each size class has a free list. Large requests are rounded up to multiples of 64 KiB and
// served by best fit from blocks that are at most a quarter too large. Training repeats its shapes, so nearly
// every request finds a block of exactly its size.
constexpr int64_t kMinBlock = 64;
constexpr int64_t kSmallLimit = int64_t{1} << 20;
constexpr int64_t kLargeStep = int64_t{64} << 10;
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

int64_t class_size(int64_t bytes) {
  if (bytes <= 1024) return round_up(bytes, kMinBlock);
  if (bytes > kSmallLimit) return round_up(bytes, kLargeStep);
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes - 1))) / 16;
  return round_up(bytes, step);
}

// Returns the index of a small size class. `size` is a value of class_size().
int class_index(int64_t size) {
  if (size <= 1024) return static_cast<int>(size / kMinBlock);
  const int power = std::bit_width(static_cast<uint64_t>(size - 1)) - 1;  // 2^power < size <= 2^(power+1)
  const int64_t step = (int64_t{1} << power) / 16;
  return 16 + (power - 10) * 16 + static_cast<int>((size - (int64_t{1} << power)) / step);
}
constexpr int kClasses = 16 + 10 * 16 + 1;

class SpinLock {
 public:
  void lock() {
    for (int i = 0; flag_.test_and_set(std::memory_order_acquire); ++i)
      if (i > 64) std::this_thread::yield();
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaching = false;  // AddressSanitizer must see every allocation
#else
constexpr bool kCaching = true;
#endif

// The allocator of one CPU device. Callers pass the requested bytes (> 0) again to deallocate. A free small
// block stores the pointer to the next one in its first bytes.
class CachingAllocator {
 public:
  void* allocate(int64_t bytes) {
    const int64_t size = class_size(bytes);
    if (guarding_) [[unlikely]]
      return allocate_guarded(bytes, size);
    void* p = nullptr;
    int64_t taken = size;
    {
      std::lock_guard lock(lock_);
      p = size <= kSmallLimit ? take_small(size) : take_large(size, taken);
      if (p) {
        ++stats_.allocations;
        stats_.cached_bytes -= taken;
        stats_.add_live(taken);
        return p;
      }
      ++stats_.system_calls;
    }
    p = from_system(size);
    if (!p) {
      release_cached();
      p = from_system(size);
    }
    std::lock_guard lock(lock_);
    if (!p)
      throw OutOfMemoryError("allocate", "out of memory: asked for ", bytes, " bytes; ", to_string(stats_));
    if (size > kSmallLimit) record_large_size(p, size);
    ++stats_.allocations;
    stats_.add_live(size);
    return p;
  }

  void deallocate(void* p, int64_t bytes) noexcept {
    int64_t size = class_size(bytes);
    if (guarding_) [[unlikely]] {
      unmap_guarded(p, bytes);
      std::lock_guard lock(lock_);
      stats_.live_bytes -= size;
      return;
    }
    std::lock_guard lock(lock_);
    if (size > kSmallLimit) size = large_sizes_.find(p)->second;
    stats_.live_bytes -= size;
    if (!kCaching) {
      large_sizes_.erase(p);
      std::free(p);
      return;
    }
    if (size <= kSmallLimit) {
      stats_.cached_bytes += size;
      void*& head = free_[class_index(size)];
      *static_cast<void**>(p) = head;
      head = p;
    } else {
      try {
        large_free_.emplace(size, p);
        stats_.cached_bytes += size;
      } catch (const std::bad_alloc&) {  // no memory for the map entry
        large_sizes_.erase(p);
        std::free(p);
      }
    }
  }

  void release_cached() {
    std::lock_guard lock(lock_);
    for (void*& head : free_)
      while (head) {
        void* next = *static_cast<void**>(head);
        std::free(head);
        head = next;
      }
    for (auto& [size, p] : large_free_) {
      large_sizes_.erase(p);
      std::free(p);
    }
    large_free_.clear();
    stats_.cached_bytes = 0;
  }

  // Count a block of the meta device, which has no memory, as allocated or freed.
  void count(int64_t bytes) {
    std::lock_guard lock(lock_);
    ++stats_.allocations;
    stats_.add_live(class_size(bytes));
  }
  void uncount(int64_t bytes) noexcept {
    std::lock_guard lock(lock_);
    stats_.live_bytes -= class_size(bytes);
  }

  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

  // Calls f(counts) with the lock held.
  template <class F> auto counts(F&& f) {
    std::lock_guard lock(lock_);
    return f(stats_);
  }

 private:
  // With GRADUS_GUARD, a debugging mode: each block has its own mapping between guard pages, and nothing is
  // cached.
  void* allocate_guarded(int64_t bytes, int64_t size) {
    void* p = map_guarded(bytes);
    std::lock_guard lock(lock_);
    if (!p)
      throw OutOfMemoryError("allocate", "out of memory: asked for ", bytes, " bytes; ", to_string(stats_),
                             "; ", guarded_blocks(),
                             " blocks have mappings of their own by GRADUS_GUARD, two or three each: the "
                             "system allows so many per process as vm.max_map_count says");
    ++stats_.allocations, ++stats_.system_calls;
    stats_.add_live(size);
    return p;
  }

  void record_large_size(void* p, int64_t size) {
    try {
      large_sizes_[p] = size;
    } catch (const std::bad_alloc&) {
      std::free(p);
      throw;
    }
  }

  void* take_small(int64_t size) {
    void*& head = free_[class_index(size)];
    void* p = head;
    if (p) head = *static_cast<void**>(p);
    return p;
  }

  // Returns the smallest free block of size to 1.25 size, and its size in `taken`; null if there is none.
  void* take_large(int64_t size, int64_t& taken) {
    auto it = large_free_.lower_bound(size);
    if (it == large_free_.end() || it->first > size + size / 4) return nullptr;
    taken = it->first;
    void* p = it->second;
    large_free_.erase(it);
    return p;
  }

  static void* from_system(int64_t size) {
    if (size > internal::physical_memory())
      return nullptr;  // the system might grant it (overcommit) and kill the process when it is used
    const bool huge = size >= kHugePage;
    void* p = std::aligned_alloc(huge ? kHugePage : 64, round_up(size, huge ? kHugePage : 64));
    if (p && huge) madvise(p, size, MADV_HUGEPAGE);  // a hint: fewer page faults
    return p;
  }

  const bool guarding_ = is_guarding();
  SpinLock lock_;
  internal::MemoryCounts stats_;
  std::array<void*, kClasses> free_{};              // head of the list of free small blocks, by class_index()
  std::multimap<int64_t, void*> large_free_;        // free large blocks by size
  std::unordered_map<void*, int64_t> large_sizes_;  // size of every large block, live or free
};

constexpr int kMaxCpuDevices = 64;

std::string mib(int64_t bytes) {
  return concat(bytes >> 20, '.', (bytes & ((1 << 20) - 1)) * 10 >> 20, " MiB");
}

std::string pad_left(const std::string& text, size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

// One per CPU device, and the last for the meta device.
using Allocators = std::array<CachingAllocator, kMaxCpuDevices + 1>;

// Never destroyed: static tensors may be destroyed later.
Allocators& allocators() {
  static auto* all = [] {
    // fork() happens with all locks held, so that no lock is left locked in the child.
    pthread_atfork(
        [] {
          for (CachingAllocator& a : allocators()) a.lock();
        },
        [] {
          for (CachingAllocator& a : allocators()) a.unlock();
        },
        [] {
          for (CachingAllocator& a : allocators()) a.unlock();
        });
    return new Allocators;
  }();
  return *all;
}

CachingAllocator& allocator_of(Device device) {
  if (device.type == DeviceType::kMeta) return allocators()[kMaxCpuDevices];
  if (device.index < 0 || device.index >= kMaxCpuDevices)
    throw DeviceError("allocate", device, " does not exist: indices go from 0 to ", kMaxCpuDevices - 1);
  return allocators()[device.index];
}

bool is_native(Device device) { return device.type == DeviceType::kCUDA; }

// Calls f(counts) of the device's allocator.
template <class F> auto with_counts(Device device, F&& f) {
  return is_native(device) ? internal::DeviceAllocator::of(device).counts(f) : allocator_of(device).counts(f);
}

}  // namespace

using internal::MemoryCounts;

MemoryStats memory_stats(Device device) {
  return with_counts(device, [](const MemoryStats& s) { return s; });
}
void reset_peak_memory(Device device) {
  with_counts(device, [](MemoryCounts& c) { c.reset_peak(); });
}
void empty_cache(Device device) {
  if (is_native(device)) return internal::DeviceAllocator::of(device).release_cached();
  allocator_of(device).release_cached();
}
int64_t allocation_size(int64_t bytes) { return class_size(bytes); }
void* allocate(Device device, int64_t bytes) {
  void* p = nullptr;
  if (is_native(device)) {
    p = internal::DeviceAllocator::of(device).allocate(bytes, internal::current_native_stream(device));
  } else if (CachingAllocator& allocator = allocator_of(device); device.type == DeviceType::kMeta) {
    allocator.count(bytes);
  } else {
    p = allocator.allocate(bytes);
    if (device.index > 0) internal::Backlog::add_to_next_task(bytes);
  }
  if (Observer* o = observer()) [[unlikely]]
    o->allocated(device);
  return p;
}
void deallocate(Device device, void* p, int64_t bytes) noexcept {
  if (is_native(device)) return internal::DeviceAllocator::find(device)->deallocate(p);
  CachingAllocator& allocator = allocator_of(device);
  if (device.type != DeviceType::kMeta) return allocator.deallocate(p, bytes);
  allocator.uncount(bytes);
}

std::string to_string(const MemoryStats& s) {
  return concat("live ", mib(s.live_bytes), ", peak ", mib(s.peak_bytes), ", cached ", mib(s.cached_bytes),
                ", ", s.allocations, " allocations, ", s.system_calls, " from the system");
}

std::string memory_summary() {
  constexpr int kWidth = 14;
  std::string text = "device";
  for (const char* title : {"live", "peak", "cached", "allocations", "from system"})
    text += pad_left(title, kWidth);
  const auto add = [&](Device device) {
    const MemoryStats s = memory_stats(device);
    if (s.allocations == 0) return;
    const std::string name = concat(device);
    text += "\n" + name + std::string(name.size() < 6 ? 6 - name.size() : 0, ' ');
    for (int64_t bytes : {s.live_bytes, s.peak_bytes, s.cached_bytes}) text += pad_left(mib(bytes), kWidth);
    for (int64_t count : {s.allocations, s.system_calls}) text += pad_left(concat(count), kWidth);
  };
  for (int16_t i = 0; i < kMaxCpuDevices; ++i) add({DeviceType::kCPU, i});
  for (const Device device : internal::DeviceAllocator::devices()) add(device);
  add({DeviceType::kMeta});
  return text + "\n";
}

PeakMemory::PeakMemory(Device device) : device_(device) {
  with_counts(device, [this](MemoryCounts& c) { before_ = c.live_bytes, slot_ = c.begin_peak(); });
}
PeakMemory::~PeakMemory() {
  with_counts(device_, [this](MemoryCounts& c) { c.end_peak(slot_); });
}
int64_t PeakMemory::bytes() const {
  return with_counts(device_, [this](MemoryCounts& c) { return c.peak(slot_); });
}

}  // namespace gradus
