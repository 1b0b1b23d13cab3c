// CallQueue: runs the collective calls of a group one at a time, in the order in which they are made. try_run
// runs a call on the caller's thread if the queue is idle (synchronous calls); post queues a call for the
// queue's own thread, which the first post starts (asynchronous calls).
//
// Note [Groups that go first]
// The last handle of a group may be destroyed before the group's posted calls have run. A call waits for
// other ranks, and a destructor must not wait for them: it may run while an exception unwinds, which other
// ranks learn of only after the stack is unwound. So a posted call has a reference to its group, and the
// queue is destroyed when it is empty. A rank that leaves waits for the posted calls of all
// its groups (PostedCalls).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "gradus/distributed/health/futex.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist::internal {

// Counts a rank's posted calls that have not ended. Thread-safe.
class PostedCalls {
 public:
  void add(const CallSeries& series, int calls);  // calls < 0: they have ended
  bool none() const { return count_.load(std::memory_order_acquire) == 0; }
  // Returns whether one of the calls is of the group of `series`, or of the messages between its two ranks.
  bool has(const CallSeries& series) const;

  Futex changed;  // notified by add

 private:
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::map<CallSeries, int> counts_;
};

// Thread-safe.
class CallQueue {
 public:
  // try_run passes a call's exception to its caller. A posted call must catch its exceptions; only RankKilled
  // of a simulation may leave it, which ends the queue.
  using Call = std::function<void()>;

  CallQueue(std::shared_ptr<PostedCalls> posted, const CallSeries& series);
  ~CallQueue();  // the queue is empty then: posted calls have a reference to its owner
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs the call on this thread, unless another call runs or is queued. Returns whether the call ran.
  bool try_run(const Call& call);
  // Blocks until no call runs or is queued.
  void wait_until_idle();
  // Queues the call for the queue's thread, and returns at once.
  // Errors: InternalError if the thread has ended; what starting a thread throws (the call is dropped then).
  void post(Call call);
  // Returns the queue's id: the value of current_call_queue (health/wait_scope.h) on the queue's thread.
  const void* id() const { return state_.get(); }

 private:
  struct State {
    const std::shared_ptr<PostedCalls> posted;
    const CallSeries series;
    std::mutex mutex;
    std::deque<Call> calls;
    bool busy = false;     // a call runs, on any thread
    bool started = false;  // the thread has been started
    bool stop = false;     // the thread ends when `calls` is empty
    bool ended = false;    // the thread has ended, so posted calls would not run
    Futex changed;         // notified after each change

    void end_call();
    void end() noexcept;
  };
  static void serve(State& state);

  // Shared with the thread, whose last call may release the last reference to the group and destroy the
  // queue.
  const std::shared_ptr<State> state_;
  // Of the constructor's process: a forked child does not have the thread.
  const int process_ = gradus::internal::fork_count();
  std::thread thread_;
};

// Returns the limits of a wait for another thread of this rank. Such a wait needs no other rank, and the
// job's failure does not end it.
WaitLimits local_wait_limits(const Deadline& deadline = Deadline::after(Milliseconds::max()));

}  // namespace gradus::dist::internal
