// Backpressure for asynchronous CPU streams: limits the memory of queued kernels.
//
// Note [Backlog]
// On a queued device (cpu:1 and up) memory is allocated when a kernel is queued, and the kernel's temporaries are
// freed when it has run. A host thread that queues a whole training step ahead would allocate all temporaries of
// the step at once. So the bytes that a thread allocates are attributed to the next task that it queues, and
// counted until this task has run. A host thread blocks before it queues a task while the queued tasks have more
// than `limit` bytes (a quarter of the machine's memory).
//
// A task may itself wait for a later action of the host thread, which would be a deadlock. So the host thread
// blocks only while tasks finish: if none has finished for `stall_timeout`, the host thread queues its task
// anyway. Worker threads of streams never block.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gradus::internal {

// Returns the bytes of physical memory, or the memory limit of the process's cgroup if that is lower.
int64_t physical_memory();

class Backlog {
 public:
  // Records that the calling thread allocated `bytes` on a queued device.
  static void add_to_next_task(int64_t bytes);
  // Returns the bytes that the calling thread has recorded since its last call, and resets them.
  static int64_t take_recorded_bytes();
  // Exempts the calling thread from wait_until_below_limit().
  static void exempt_this_thread();

  // Blocks until the queued tasks have at most `limit` bytes, or no task has finished for `stall_timeout`.
  void wait_until_below_limit();
  // Adds a task that was queued.
  void add_task(int64_t bytes) { bytes_ += bytes; }
  // Removes a task that has run and whose memory is freed.
  void remove_task(int64_t bytes) {
    bytes_ -= bytes;
    ++ended_;
  }

  std::atomic<int64_t> limit{physical_memory() / 4};
  std::atomic<std::chrono::milliseconds> stall_timeout{std::chrono::seconds(5)};

 private:
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> ended_{0};              // number of finished tasks
  std::atomic<int64_t> ended_at_timeout_{-1};  // value of ended_ when a thread last gave up waiting
};

// Returns the backlog of all queues of this process.
Backlog& backlog();

}  // namespace gradus::internal
