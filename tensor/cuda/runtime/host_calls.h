// Counts the calls that a scope makes of CUDA: launches, waits, allocations, copies.
//
//   cuda::HostCallScope calls;
//   step();
//   calls.total().waits           // 0: nothing made the host wait
//   std::cout << calls.table();   // by op
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace gradus::cuda {

// Calls that succeeded.
struct HostCalls {
  int64_t launches = 0;       // of kernels
  int64_t library_calls = 0;  // products and convolutions
  int64_t waits = 0;          // of the host for a stream, an event or a device: freeing memory is one
  int64_t allocations = 0;    // of the device's memory or of pinned memory, which no cache had
  int64_t copies_to_device = 0, bytes_to_device = 0;
  int64_t copies_to_host = 0, bytes_to_host = 0;
  int64_t copies_on_device = 0, bytes_on_device = 0;  // also from one to another
  int64_t pageable_copies = 0;  // of those to a device and to the host. The host may wait for each

  HostCalls& operator+=(const HostCalls& other);
  bool operator==(const HostCalls&) const = default;
};

// Counts while it lives, on all threads.
// Errors: StateError while there is another.
class HostCallScope {
 public:
  HostCallScope();
  ~HostCallScope();
  HostCallScope(const HostCallScope&) = delete;
  HostCallScope& operator=(const HostCallScope&) = delete;

  HostCalls total() const;
  // By op: "linear", which the user called, or "linear: matmul", where it called another. The rest is "host".
  std::map<std::string, HostCalls> by_op() const;
  // A line for each op, the one with the most launches first.
  std::string table() const;
  // Begins again at 0.
  void restart();
};

namespace host_calls {
inline std::atomic<bool> are_counted{false};
void add(const char* op, const HostCalls& calls);
}  // namespace host_calls

// Counts what `op` has asked. Null stands for the op that the user called.
inline void count_calls(const char* op, const HostCalls& calls) {
  if (host_calls::are_counted.load(std::memory_order_relaxed)) [[unlikely]]
    host_calls::add(op, calls);
}

}  // namespace gradus::cuda
