// CallQueue: runs the calls of a group one at a time, in the order in which they are made. A call that
// nothing is before runs in the caller's thread; others on a thread of the queue's own, which starts with
// the first of them.
//
// Note [Groups that go first]
// A call waits for other ranks. No destructor may: it may run while an exception unwinds, and the others
// learn of that exception only when its stack is gone. So a posted call holds its group, and the queue goes
// when it has nothing left to run. PostedCalls counts the calls of all groups of a rank: a rank that leaves
// in order waits for them there.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gradus/distributed/base/futex.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist::internal {

// Calls that were posted and have not ended.
class PostedCalls {
 public:
  void add(const std::string& group, int calls);
  bool none() const { return count_.load(std::memory_order_acquire) == 0; }
  // Whether one is of the group that a status names at its end.
  bool is_of(std::string_view doing) const;

  Futex changed;

 private:
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::map<std::string, int> of_group_;
};

class CallQueue {
 public:
  // What it throws does not stop the queue, and reaches nobody when it was posted.
  using Call = std::function<void()>;

  CallQueue(std::shared_ptr<PostedCalls> posted, std::string group);
  ~CallQueue();  // after its last call: posted ones hold what owns the queue
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs the call now, unless another one is under way or waits. Returns whether it did.
  bool try_run(const Call& call);
  void post(Call call);
  // What posted_calls is on its thread.
  const void* id() const { return state_.get(); }

 private:
  struct State {
    const std::shared_ptr<PostedCalls> posted;
    const std::string group;
    std::mutex mutex;
    std::deque<Call> calls;
    bool busy = false;     // a call runs
    bool started = false;  // the thread
    bool stop = false;
    bool ended = false;  // the thread: nothing runs what would be posted
    Futex changed;

    void end_call();
    void end() noexcept;
  };
  static void serve(State& state);

  // Shared with the thread: the queue may be destroyed on it, by the last owner of a group that a call held.
  const std::shared_ptr<State> state_;
  const int process_ = gradus::internal::fork_count();
  std::thread thread_;
};

// The watch of a wait for another thread of this rank, which ends without help from other ranks: not
// by their failure.
Watch local_watch(const Deadline& deadline = Deadline::after(Milliseconds::max()));

}  // namespace gradus::dist::internal
