// CallQueue: a mutex-protected FIFO of a group's calls and the thread that serves it. `busy` excludes the
// calls that try_run runs on callers' threads from those of the queue's thread.
#include "gradus/distributed/group/internal/call_queue.h"

#include <algorithm>

#include "gradus/distributed/health/still_threads.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {

WaitLimits local_wait_limits(const Deadline& deadline) {
  // The membership of a job of one rank never fails. Never destroyed: threads may wait when the process ends.
  static const auto& nobody = *new std::shared_ptr<Membership>(make_local_memberships(1)[0]);
  return {nobody.get(), deadline};
}

void CallQueue::State::end_call() {
  {
    std::lock_guard lock(mutex);
    busy = false;
  }
  changed.notify();
}

// Runs when the queue's thread ends or could not be started. Drops the calls that are left. There are some
// only if the thread did not start or a simulation kills the rank.
void CallQueue::State::end() noexcept {
  std::deque<Call> dropped;
  {
    std::lock_guard lock(mutex);
    ended = true;
    dropped.swap(calls);
  }
  const int count = int(dropped.size());
  dropped.clear();
  posted->add(series, -count);
}

void PostedCalls::add(const CallSeries& series, int calls) {
  {
    std::lock_guard lock(mutex_);
    const auto it = counts_.try_emplace(series, 0).first;
    if ((it->second += calls) == 0) counts_.erase(it);
    count_.fetch_add(calls, std::memory_order_acq_rel);
  }
  changed.notify();
}

// A barrier of a group counts as a call of the group's collectives.
bool PostedCalls::has(const CallSeries& series) const {
  const bool is_barrier = series.kind == CallSeries::Kind::kBarrier;
  std::lock_guard lock(mutex_);
  return counts_.contains(
      {is_barrier ? CallSeries::Kind::kCollective : series.kind, series.group, series.first});
}

CallQueue::CallQueue(std::shared_ptr<PostedCalls> posted, const CallSeries& series)
    : state_(std::make_shared<State>(std::move(posted), series)) {}

CallQueue::~CallQueue() {
  if (!thread_.joinable()) return;
  // In a forked child, the thread is the parent's.
  if (process_ != gradus::internal::fork_count()) {
    gradus::internal::abandon(std::move(thread_));
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify();
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    join_thread(thread_);
}

bool CallQueue::try_run(const Call& call) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->busy || !state_->calls.empty()) return false;
    state_->busy = true;
  }
  struct End {
    State& state;
    ~End() { state.end_call(); }
  } end{*state_};
  call();
  return true;
}

void CallQueue::wait_until_idle() {
  const auto is_idle = [&] {
    std::lock_guard lock(state_->mutex);
    return !state_->busy && state_->calls.empty();
  };
  state_->changed.wait(local_wait_limits(), is_idle, "the end of earlier calls");
}

void CallQueue::post(Call call) {
  bool start;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->ended) throw InternalError("a call for a queue whose thread has ended");
    state_->posted->add(state_->series, 1);
    state_->calls.push_back(std::move(call));
    start = !std::exchange(state_->started, true);
  }
  if (start) {
    // Calls end() in any case, even if the thread cannot be started.
    const std::shared_ptr<State> until_end(state_.get(), [state = state_](State*) { state->end(); });
    thread_ = start_thread([state = until_end] {
      name_framework_thread("calls");
      current_call_queue = state.get();
      // Calls record nothing, and keep no recording, observer or job alive: these can refer to the group.
      Context::current().recordings.clear();
      Context::current().observer = nullptr;
      Context::current().job = nullptr;
      serve(*state);
    });
  }
  state_->changed.notify();
}

void CallQueue::serve(State& state) {
  const auto has_call = [&] {
    std::lock_guard lock(state.mutex);
    return !state.busy && !state.calls.empty();
  };
  const auto may_end = [&] {
    std::lock_guard lock(state.mutex);
    return state.stop && state.calls.empty();
  };
  for (;;) {
    state.changed.wait(
        local_wait_limits(), [&] { return has_call() || may_end(); }, "a call to run");
    Call next;
    {
      std::lock_guard lock(state.mutex);
      if (state.stop && state.calls.empty()) return;
      if (state.busy || state.calls.empty()) continue;
      state.busy = true;
      next = std::move(state.calls.front());
      state.calls.pop_front();
    }
    struct End {
      State& state;
      Call& next;
      ~End() {
        next = nullptr;  // destroys the call's captures before the queue counts as idle
        state.end_call();
        state.posted->add(state.series, -1);
      }
    } end{state, next};
    next();
  }
}

}  // namespace gradus::dist::internal
