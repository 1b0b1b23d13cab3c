// The memory of the emulated devices. Host code gets addresses without access rights: an access ends the
// program with a report. Kernels access the same bytes at other addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "gradus/tools/cuda_emulator/shadow.h"

namespace gradus::cuda::emulated {

// The state of a byte of device or shared memory.
enum class Byte : uint8_t { kFree, kUnwritten, kWritten };

// The state of newly allocated memory. A sanitizer replaces the hooks that report what kernels write: then
// all memory counts as written.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr Byte kFresh = Byte::kWritten;
#else
inline constexpr Byte kFresh = Byte::kUnwritten;
#endif

// Maps memory of zeros, whose pages the system provides on first access.
void* map_zeros(size_t bytes);

class DeviceMemory {
 public:
  // Unallocated bytes between two blocks.
  static constexpr size_t kGap = 512;
  static constexpr size_t kAlignment = 512;  // as recorded of cudaMalloc

  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Returns the host's address of a new block, filled with 0xff; null when there is no room. Reports name the
  // op that it was made for, unless there is none.
  void* allocate(size_t bytes, const char* op = nullptr);
  // Returns false unless p is what allocate() returned and was not freed.
  bool free(void* p);
  // Returns whether [p, p + bytes) lies within one block.
  bool is_within_a_block(const void* p, size_t bytes) const;

  // The host's view.
  bool contains(const void* p) const {
    return static_cast<size_t>(static_cast<const char*>(p) - closed_) < bytes_;
  }
  // The kernels' view.
  bool is_seen_by_kernels(const void* p) const {
    return static_cast<size_t>(static_cast<const char*>(p) - open_) < bytes_;
  }
  char* for_kernels(const void* host_address) const {
    return open_ + (static_cast<const char*>(host_address) - closed_);
  }
  size_t offset(const void* kernel_address) const {
    return static_cast<size_t>(static_cast<const char*>(kernel_address) - open_);
  }

  // The state of the bytes from an offset on.
  Byte* state(size_t offset) { return state_ + offset; }
  Shadow* shadow() { return &shadow_; }

  // Copies bytes and their state. Either side may be host memory.
  static void copy(void* to, const void* from, size_t bytes);
  void set(void* to, int value, size_t bytes);

  // "allocation 3 of 4096 bytes for conv2d, byte 20", "1 bytes beyond allocation 3 ...", and the like.
  std::string describe(size_t offset) const;

  size_t size() const { return bytes_; }
  size_t used() const { return used_; }
  size_t blocks() const { return blocks_.size(); }

  // The other devices whose memory the kernels of this one may access.
  std::set<int> peers;

 private:
  struct Block {
    size_t bytes;
    std::string name;
  };
  struct Freed {
    size_t offset;
    Block block;
  };

  size_t bytes_;
  char* closed_;  // the host's view
  char* open_;    // the kernels' view
  Byte* state_;
  Shadow shadow_;
  std::map<size_t, Block> blocks_;  // by offset
  std::deque<Freed> freed_;         // the latest, for describe()
  size_t next_ = 0;                 // where the search for room starts, so that freed memory is reused late
  size_t used_ = 0;
  uint64_t allocations_ = 0;
};

// The device memory that contains an address of the host's view, or null.
DeviceMemory* device_that_holds(const void* p);
// The number of the device whose memory contains an address of the kernels' view, or -1.
int device_whose_kernels_see(const void* p);
// The memory of a device, counted from 0; null if there is none.
DeviceMemory* memory_of(int device);
int device_number(const DeviceMemory* memory);
int device_count();
// Replaces all devices by `count` fresh ones. For tests: nothing may be allocated or running.
void set_devices(int count, size_t bytes_each);

}  // namespace gradus::cuda::emulated
