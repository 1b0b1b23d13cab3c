// CallQueue: runs the calls of a group one at a time, in the order in which they are made. A call that
// nothing is before runs in the caller's thread; others on a thread of the queue's own, which starts with the
// first of them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "gradus/distributed/signal.h"

namespace gradus::dist::internal {

class CallQueue {
 public:
  // What it throws does not stop the queue, and reaches nobody when it was posted.
  using Call = std::function<void()>;

  CallQueue() = default;
  ~CallQueue();  // waits for the calls
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs the call now, unless another one is under way or waits. Returns whether it did.
  bool try_run(const Call& call);
  void post(Call call);

 private:
  struct State {
    std::mutex mutex;
    std::deque<Call> calls;
    bool busy = false;     // a call runs
    bool started = false;  // the thread
    bool stop = false;
    Signal changed;

    void end_call();
  };
  static void serve(State& state);

  // Shared with the thread: the queue may be destroyed on it, by the last owner of a group that a call held.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

// The watch of a wait for another thread of this rank, which ends without help from other ranks: not by their
// failure.
Watch local_watch(const Deadline& deadline = Deadline::after(Milliseconds::max()));

}  // namespace gradus::dist::internal
