// HostCallScope: counts Gradus' calls of CUDA on the host (launches, waits, allocations, copies) by op.
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

// Numbers of successful calls, and bytes.
struct HostCalls {
  int64_t launches = 0;       // of kernels
  int64_t library_calls = 0;  // products by cuBLASLt, convolutions and attention by cuDNN
  int64_t waits = 0;          // of the host for a stream, an event or a device, also by freeing memory
  int64_t allocations = 0;    // by CUDA, of device memory or pinned memory; not those from a cache
  int64_t copies_to_device = 0, bytes_to_device = 0;
  int64_t copies_to_host = 0, bytes_to_host = 0;
  int64_t copies_on_device = 0, bytes_on_device = 0;  // also between devices
  int64_t pageable_copies = 0;  // those to or from pageable host memory, for which the host may wait

  HostCalls& operator+=(const HostCalls& other);
  bool operator==(const HostCalls&) const = default;
};

// Counts the calls of all threads during its lifetime. Thread-safe.
// Errors: StateError if another scope exists.
class HostCallScope {
 public:
  HostCallScope();
  ~HostCallScope();
  HostCallScope(const HostCallScope&) = delete;
  HostCallScope& operator=(const HostCallScope&) = delete;

  HostCalls total() const;
  // By op: "linear", which the user called, or "linear: matmul" if linear called matmul; else "host".
  std::map<std::string, HostCalls> by_op() const;
  // Returns a line for each op, the one with the most launches and library calls first.
  std::string table() const;
  // Resets all counts to 0.
  void restart();
};

namespace host_calls {
inline std::atomic<bool> are_counted{false};
void add(const char* op, const HostCalls& calls);
}  // namespace host_calls

// Adds successful calls of `op` to the open scope, if any. Null: of the op that the user called.
inline void count_calls(const char* op, const HostCalls& calls) {
  if (host_calls::are_counted.load(std::memory_order_relaxed)) [[unlikely]]
    host_calls::add(op, calls);
}

}  // namespace gradus::cuda
