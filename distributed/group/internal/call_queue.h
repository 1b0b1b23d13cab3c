// CallQueue: runs the calls of a group one at a time, in the order in which they are made. try_run runs a
// call in the caller's thread if no other call is under way. Posted calls run on the queue's own thread,
// which starts with the first of them.
//
// Note [Groups that go first]
// A call waits for other ranks. A destructor must not wait for them: it may run while an exception unwinds,
// and other ranks learn of that exception only after the stack is unwound. So a posted call holds its group,
// and the queue is destroyed when it has nothing left to run. PostedCalls counts the posted calls of all
// groups of a rank. A rank that leaves in order waits for them there.
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

// The calls that were posted and have not ended.
class PostedCalls {
 public:
  void add(const CallSeries& series, int calls);
  bool none() const { return count_.load(std::memory_order_acquire) == 0; }
  // Returns whether one of the calls is of the group of `series`.
  bool has(const CallSeries& series) const;

  Futex changed;

 private:
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::map<CallSeries, int> of_series_;
};

class CallQueue {
 public:
  // An exception from a call run by try_run goes to the caller, and the queue goes on. A posted call must
  // catch its errors itself; only RankKilled of a simulation may leave it.
  using Call = std::function<void()>;

  CallQueue(std::shared_ptr<PostedCalls> posted, const CallSeries& series);
  ~CallQueue();  // after its last call: posted calls hold the queue's owner
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs the call now, unless another call runs or waits. Returns whether it ran.
  bool try_run(const Call& call);
  void post(Call call);
  // Returns the value of posted_calls on the queue's thread.
  const void* id() const { return state_.get(); }

 private:
  struct State {
    const std::shared_ptr<PostedCalls> posted;
    const CallSeries series;
    std::mutex mutex;
    std::deque<Call> calls;
    bool busy = false;     // whether a call runs
    bool started = false;  // whether the thread has started
    bool stop = false;
    bool ended = false;  // whether the thread has ended: nothing would run a posted call
    Futex changed;

    void end_call();
    void end() noexcept;
  };
  static void serve(State& state);

  // Shared with the thread. A call on the thread may hold the last reference to the group, and so
  // destroy the queue.
  const std::shared_ptr<State> state_;
  const int process_ = gradus::internal::fork_count();
  std::thread thread_;
};

// Returns the limits of a wait for another thread of this rank. Such a wait needs no other rank, and the job's
// failure does not end it.
WaitLimits local_wait_limits(const Deadline& deadline = Deadline::after(Milliseconds::max()));

}  // namespace gradus::dist::internal
