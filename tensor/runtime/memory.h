// Memory use as text and numbers for users: a table of all devices, and the peak within a stretch of code.
// gradus/tensor/runtime/allocator.h has the counts of one device.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/tensor/base/device_failure.h"  // OutOfMemoryError
#include "gradus/tensor/runtime/allocator.h"

namespace gradus {

// Returns a table with a line for each device that was ever asked for memory.
std::string memory_summary();

// The highest live_bytes within a stretch of code, regardless of earlier peaks. Scopes nest, on one
// thread or on several.
//
//   PeakMemory peak;
//   step();
//   std::cout << peak.added_bytes() << " bytes on top of " << peak.bytes_before() << '\n';
class PeakMemory {
 public:
  explicit PeakMemory(Device device = kCPU);
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  int64_t bytes() const;                                     // highest live_bytes since the scope began
  int64_t bytes_before() const { return before_; }           // live_bytes when it began
  int64_t added_bytes() const { return bytes() - before_; }  // the difference

 private:
  Device device_;
  int64_t before_ = 0;
  int slot_ = 0;
};

}  // namespace gradus
