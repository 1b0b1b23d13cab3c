// A bound on the memory that queued kernels hold.
//
// Note [Backlog]
// On a queued device, memory is taken when a kernel is queued, and the kernel's temporaries are free when it
// has run. A host that queues a whole step ahead would hold all temporaries of this step at once. So the
// backlog counts the bytes that a thread has taken for the next task that it queues, until this task has run.
// A host that wants to queue a task waits while all queues together hold more than a quarter of the
// machine's memory.
//
// A task may itself wait for what the host does next. So the host waits only while tasks go on ending: when
// none has ended for some seconds, it queues its task anyway. Threads of streams never wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gradus::internal {

// Returns the bytes of memory that the machine has, or that containers leave of it.
int64_t physical_memory();

class Backlog {
 public:
  // Notes that the calling thread took `bytes` on a queued device.
  static void add_to_next_task(int64_t bytes);
  // Returns what the calling thread has noted since its last call.
  static int64_t take_for_task();
  // Makes the calling thread one that never waits.
  static void never_wait_here();

  // Waits until the queues hold at most `limit` bytes.
  void wait_for_room();
  // Counts a task that was queued.
  void enter(int64_t bytes) { bytes_ += bytes; }
  // Counts a task that has run and holds its bytes no longer.
  void leave(int64_t bytes) {
    bytes_ -= bytes;
    ++ended_;
  }

  std::atomic<int64_t> limit{physical_memory() / 4};
  std::atomic<std::chrono::milliseconds> patience{std::chrono::seconds(5)};

 private:
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> ended_{0};      // tasks so far
  std::atomic<int64_t> stuck_at_{-1};  // number of ended tasks when a host lost its patience
};

// Returns the backlog of all queues of this process.
Backlog& backlog();

}  // namespace gradus::internal
