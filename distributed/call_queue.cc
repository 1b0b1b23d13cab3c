#include "gradus/distributed/call_queue.h"

#include "gradus/tensor/context.h"

namespace gradus::dist::internal {

Watch local_watch(const Deadline& deadline) {
  // Never destroyed: threads may still wait when the process ends.
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

CallQueue::~CallQueue() {
  if (!thread_.joinable()) return;
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

void CallQueue::post(Call call) {
  bool start;
  {
    std::lock_guard lock(state_->mutex);
    state_->calls.push_back(std::move(call));
    start = !std::exchange(state_->started, true);
  }
  if (start)
    thread_ = start_thread([state = state_] {
      name_thread("collectives");
      Context::current().recordings.clear();  // calls record nothing, and should keep no recording alive
      Context::current().observer = nullptr;  // nor a profile
      serve(*state);
    });
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
        local_watch(), [&] { return has_call() || may_end(); }, "a call to run");
    Call next;
    {
      std::lock_guard lock(state.mutex);
      if (state.stop && state.calls.empty()) return;
      if (state.busy || state.calls.empty()) continue;
      state.busy = true;
      next = std::move(state.calls.front());
      state.calls.pop_front();
    }
    next();
    next = nullptr;  // what it held goes before others may believe that the queue is idle
    state.end_call();
  }
}

}  // namespace gradus::dist::internal
