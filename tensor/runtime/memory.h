// Memory reports for users: a table of all devices, and the peak use within a scope. The statistics of one device
// are in gradus/tensor/runtime/allocator.h.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/tensor/base/device_failure.h"  // OutOfMemoryError
#include "gradus/tensor/runtime/allocator.h"

namespace gradus {

// Returns a table (bytes in MiB) with a row for each device on which memory was allocated.
std::string memory_summary();

// Measures the highest live_bytes of a device during the lifetime of the object, independently of earlier peaks.
// Objects may overlap, on one thread or on several.
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

  int64_t bytes() const;                                     // highest live_bytes since construction
  int64_t bytes_before() const { return before_; }           // live_bytes at construction
  int64_t added_bytes() const { return bytes() - before_; }  // the difference

 private:
  Device device_;
  int64_t before_ = 0;
  int slot_ = 0;
};

}  // namespace gradus
