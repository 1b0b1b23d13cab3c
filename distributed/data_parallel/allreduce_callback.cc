// Implementation of AllReduceCallback: the callbacks of a backward, the notes to other ranks, no_sync and join.
#include "gradus/distributed/data_parallel/allreduce_callback.h"

#include <algorithm>
#include <cctype>
#include <thread>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/data_parallel/internal/backward.h"
#include "gradus/distributed/group/agreement.h"

namespace gradus::dist {

using internal::BackwardNote, internal::Consensus, internal::Op;

namespace {

bool is_outer_recording_open() {
  return std::ranges::any_of(autograd::open_recordings(),
                             [](const auto& r) { return !autograd::as_recording(r)->finished(); });
}

// Returns a duplicate of the group, after checks of the options.
Group duplicate_for(const Group& group, ReduceOp op, const AllReduceCallbackOptions& options, Op maker) {
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg)
    throw ValueError(internal::name_of(maker), "expected sum or mean, got ", name_of(op));
  internal::caps_of(options);
  group.state().check_member(internal::name_of(maker));
  return group.size() == 1 ? group : internal::duplicate(group, maker, options.group_name);
}

}  // namespace

std::shared_ptr<AllReduceCallback> make_allreduce_cb(ReduceOp op, AllReduceCallbackOptions options) {
  return std::make_shared<AllReduceCallback>(op, std::move(options), Op::kMakeAllreduceCb);
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, AllReduceCallbackOptions options) {
  std::string name(op);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  if (name == "sum") return make_allreduce_cb(ReduceOp::kSum, std::move(options));
  if (name == "mean") return make_allreduce_cb(ReduceOp::kMean, std::move(options));
  throw ValueError("make_allreduce_cb", "expected \"sum\" or \"mean\", got \"", op, '"');
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, const Group& group) {
  return make_allreduce_cb(op, {.group = group});
}

NoSync::NoSync(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks) {
  for (const auto& callback : callbacks) {
    ++callback->no_sync_;
    scopes_.emplace_back(callback.get(), [callback](void*) { --callback->no_sync_; });
  }
}

AllReduceCallback::AllReduceCallback(ReduceOp op, AllReduceCallbackOptions options, Op maker)
    : op_(op),
      options_(std::move(options)),
      without_job_(!internal::World::current()),
      users_group_(internal::resolved(options_.group)),
      group_(duplicate_for(users_group_, op_, options_, maker)),
      params_(std::make_unique<internal::AttachedParams>(options_.name_of)) {}
AllReduceCallback::~AllReduceCallback() = default;

void AllReduceCallback::attached_to(const Tensor& param) {
  if (!is_single_rank()) internal::check_can_average("attach", concat("parameter ", params_->size()), param);
  if (params_->add(param, stats_.backwards)) plan_ = nullptr;
}

void AllReduceCallback::recording_opened(GradManager&) { users_group_.state().recording_opens(); }

void AllReduceCallback::drop_pending() { params_->clear_accumulated(); }

std::vector<std::string> AllReduceCallback::unused_parameters(int backwards) const {
  return params_->names([&](const auto& p) { return stats_.backwards - p.last_use >= backwards; });
}

std::vector<std::string> AllReduceCallback::locally_unused_parameters() const {
  return params_->names([](const auto& p) { return p.locally_unused; });
}

// ---- a backward ----

void AllReduceCallback::begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) {
  if (backward_) throw StateError("backward", "an all-reduce callback serves one backward at a time");
  if (is_single_rank() && without_job_ && internal::World::current() && internal::World::current()->size > 1)
    throw StateError("backward",
                     "make_allreduce_cb was called before init_process_group: it knows of one rank only");
  count_backward();
  users_group_.state().backward_begins();
  Backward& b = open_backward();
  std::string indices;
  for (size_t t = 0; t < attached.size(); ++t) {
    const size_t i = params_->index_of(attached[t]);
    indices += concat(i, ' ');
    b.reached[i] = reached[t] || (!b.accumulating && (*params_)[i].accumulated.defined());
  }
  if (b.accumulating || is_single_rank()) return;
  plan();
  b.in_outer_recording = is_outer_recording_open();
  const int every = options_.check_divergence_every;
  const bool compare = every > 0 && (synchronized_ + 1) % every == 0;
  if (plan_->static_consensus) {
    const std::vector<bool>& before = plan_->static_consensus->notes[group_.rank()].reached;
    for (size_t i = 0; i < before.size(); ++i)
      if (b.reached[i] != before[i])
        throw StateError("backward", params_->name_of(i),
                         before[i] ? " is no longer reached" : " is reached now",
                         ", but static_graph promises that every backward reaches the same");
    if (!join_ && !compare) {
      b.start(plan_, plan_->static_consensus);
      return b.wait_for_consensus();
    }
  }
  BackwardNote local_note = note(BackwardNote::kBackward, &b);
  local_note.attached = internal::checksum_of(indices);
  if (b.in_outer_recording) local_note.flags |= BackwardNote::kEnclosingRecording;
  if (compare) local_note.checksum = internal::checksum_of(params_->tensors()) | 1;
  send(local_note);
  b.start(plan_, last_consensus_);
}

// ready, landed and finish own a reference to the Backward: a hook that they call may begin another backward,
// which fails and abandons the current one.

std::optional<Tensor> AllReduceCallback::ready(const Tensor& param, const Tensor& grad) {
  const std::shared_ptr<Backward> b = backward_;
  const size_t i = params_->index_of(param);
  if (b && b->accumulating) {
    params_->accumulate(i, grad);
  } else if (is_single_rank()) {
    const Tensor total = internal::sum_of((*params_)[i].accumulated, grad);
    if (b && total.defined()) b->finite.check(i, total);
    return total;
  } else if (b && b->reached[i]) {
    b->set_gradient(i, (*params_)[i].accumulated, grad);
    if (options_.overlap && !b->in_outer_recording && (!options_.comm_hook || b->try_consensus()))
      b->launch_ready();
  }
  return std::nullopt;
}

std::vector<GradCallback::Delivery> AllReduceCallback::landed() {
  std::vector<Delivery> all;
  const std::shared_ptr<Backward> b = backward_;
  if (!b || !b->is_reducing() || options_.comm_hook) return all;
  if (!b->all_delivered() && b->try_consensus()) b->deliver_completed(all);
  return all;
}

std::vector<GradCallback::Delivery> AllReduceCallback::finish() {
  const std::shared_ptr<Backward> b = backward_;
  // The Backward is closed if a hook began another backward and caught its error.
  const auto check_open = [&] {
    if (!b || b != backward_)
      throw StateError("backward", "an all-reduce callback serves one backward at a time");
  };
  check_open();
  std::vector<Delivery> all;
  const TimePoint computed = internal::clock_now();
  if (b->is_reducing()) {
    b->wait_for_consensus();
    if (!b->is_canceled()) b->finish(&all);
    check_open();
  }
  if (b->is_canceled()) {
    ++stats_.canceled;
  } else if (!b->accumulating) {
    b->conclude();
    b->count(computed);
  }
  backward_ = nullptr;
  for (; b->pending_cancellations > 0; --b->pending_cancellations) send_cancellation();
  return all;
}

void AllReduceCallback::abandon(std::exception_ptr error) noexcept {
  try {
    if (!error && backward_) {  // another recording ended while this backward is running
      ++backward_->pending_cancellations;
      return;
    }
    if (!error) return send_cancellation();
    const bool agreed = backward_ && backward_->agreed_error;
    if (backward_) backward_->abandon();
    backward_ = nullptr;
    if (!is_single_rank() && !agreed) internal::report_backward_failure(group_.state().world(), error);
  } catch (...) {
    // Either the job has failed, and the next call will throw the error, or a simulation is killing this
    // rank.
  }
}

AllReduceCallback::Backward& AllReduceCallback::open_backward() {
  if (params_->remove_destroyed()) plan_ = nullptr;
  backward_ = std::make_shared<Backward>(*this);
  return *backward_;
}

void AllReduceCallback::count_backward() {
  if (!in_no_sync() || !options_.uneven_no_sync) ++number_;
}

void AllReduceCallback::plan() {
  if (!plan_) plan_ = internal::make_plan(op_, options_, *params_);
}

BackwardNote AllReduceCallback::note(int64_t kind, const Backward* backward) const {
  BackwardNote note{.kind = kind, .number = number_, .plan_fingerprint = plan_->fingerprint, .reached = {}};
  if (backward)
    note.reached = backward->reached;
  else
    note.reached.resize(params_->size());
  if (join_) {
    note.flags = BackwardNote::kJoining;
    if (!join_->divide_by_initial_world_size) note.flags |= BackwardNote::kDivideByActive;
    if (join_->throw_on_early_termination) note.flags |= BackwardNote::kEndEarly;
  }
  return note;
}

void AllReduceCallback::send(const BackwardNote& note) {
  last_consensus_ = Consensus::start(group_, note, plan_->lines);
}

// Sends a kNone note: a recording ended without a backward.
void AllReduceCallback::send_cancellation() {
  count_backward();
  users_group_.state().recording_dropped();
  if (is_single_rank() || in_no_sync()) return;
  ++stats_.canceled;
  if (params_->remove_destroyed()) plan_ = nullptr;
  plan();
  send(note(BackwardNote::kNone, nullptr));
}

// ---- join ----

int AllReduceCallback::serve_until_all_joined() {
  const struct Scope {
    ~Scope() { backward = nullptr; }
    std::shared_ptr<Backward>& backward;
  } scope{backward_};
  for (;;) {
    const std::shared_ptr<const Consensus> before = last_consensus_;
    Backward& b = open_backward();
    plan();
    send(note(BackwardNote::kJoined, &b));
    last_consensus_->wait();
    number_ = std::ranges::max(last_consensus_->notes, {}, &BackwardNote::number).number;
    if (last_consensus_->active < 0) return before ? before->root() : 0;
    users_group_.state().backward_begins();  // as on the ranks that run this backward
    b.start(plan_, last_consensus_);
    b.wait_for_consensus();
    if (b.is_canceled()) {
      ++stats_.canceled;
      continue;
    }
    b.finish(nullptr);
    b.conclude();
  }
}

void join(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks, const std::function<void()>& body,
          const JoinOptions& options, const std::vector<Tensor>& also) {
  if (callbacks.empty()) return body();
  struct Scope {
    const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks;
    size_t begun = 0;
    ~Scope() {
      for (size_t i = 0; i < begun; ++i) callbacks[i]->join_.reset();
    }
  } scope{callbacks};
  for (; scope.begun < callbacks.size(); ++scope.begun) {
    std::optional<JoinOptions>& join = callbacks[scope.begun]->join_;
    if (join) throw StateError("join", "a callback is within join() already");
    join = options;
  }
  body();
  if (callbacks[0]->is_single_rank()) return;

  // Takes part in the other ranks' backwards until all ranks have joined. Each callback has its own thread,
  // since the order in which the other ranks use the callbacks is unknown.
  std::vector<std::exception_ptr> errors(callbacks.size());
  std::vector<std::thread> threads;
  int last = 0;  // group rank of a member with the most backwards of the first callback
  const auto serve = [&](size_t i) {
    try {
      const int member = callbacks[i]->serve_until_all_joined();
      if (i == 0) last = member;
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  for (size_t i = 1; i < callbacks.size(); ++i)
    threads.push_back(internal::start_thread([&, i] { serve(i); }));
  serve(0);
  for (std::thread& thread : threads) internal::join_thread(thread);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (size_t i = 0; i < callbacks.size(); ++i) {
    std::vector<Tensor> tensors = callbacks[i]->params_->tensors();
    if (i == 0) tensors.insert(tensors.end(), also.begin(), also.end());
    internal::PackedBroadcast(callbacks[i]->group_, tensors, last).finish();
  }
}

}  // namespace gradus::dist
