// GroupState::run, the path of every collective of a process group: exchange a record of the call with the
// members, compare the records, move the data by the backend. Synchronous calls run on the calling thread if
// the group's queue is empty; other calls run one after the other on the queue's thread. make_group builds
// subgroups by such a call.
#include "gradus/distributed/group/group_state.h"

#include <algorithm>
#include <cstring>

#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/internal/captured_calls.h"
#include "gradus/distributed/transport/single_rank_backend.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"

namespace gradus::dist::internal {
namespace {

// Note [Calls]. The members' calls are matched by their number alone. Each call first exchanges records:
// number, op, dtype, shape, and sizes where these may differ. Every rank compares all records and comes to
// the same result. So a mistake is the same MismatchError everywhere, and no data moves with wrong sizes. The
// exchange is also a barrier: when it returns, every member is in this call.

constexpr const char* kThroughHost =
    "the data goes through host memory, and the host takes no part in a replay";
constexpr size_t kMaxSizes = (kMaxExchangeBytes - sizeof(CallRecord)) / sizeof(int64_t);

// A message is the bytes of a CallRecord, in the host's byte order, followed by the sizes as int64.
// from_message returns false for a malformed message.
std::string to_message(const CallRecord& record, const std::vector<int64_t>& sizes) {
  std::string message(sizeof record, '\0');
  std::memcpy(message.data(), &record, sizeof record);
  message.append(reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(int64_t));
  return message;
}

bool from_message(const std::string& message, CallRecord& record, std::vector<int64_t>& sizes) {
  if (message.size() < sizeof record || (message.size() - sizeof record) % sizeof(int64_t)) return false;
  std::memcpy(&record, message.data(), sizeof record);
  sizes.resize((message.size() - sizeof record) / sizeof(int64_t));
  if (!sizes.empty())
    std::memcpy(sizes.data(), message.data() + sizeof record, sizes.size() * sizeof(int64_t));
  return true;
}

// The future of a posted call. The queue's thread calls finish() once, with null on success.
class QueuedWork final : public WorkState {
 public:
  QueuedWork(const char* op, std::shared_ptr<Membership> membership, const void* queue)
      : op_(op), membership_(std::move(membership)), queue_(queue) {}

  void finish(std::exception_ptr error) {
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
    changed_.notify();
  }

  // Without `timeout` there is no limit here, since the call itself ends by its deadline.
  void wait(std::optional<Milliseconds> timeout) override {
    const auto done = [&] { return is_completed(); };
    const Deadline limit = Deadline::after(timeout.value_or(Milliseconds::max()));
    std::optional<WaitScope> waiting;
    if (membership_ && !done()) waiting.emplace(*membership_, Wait::for_queue(queue_, timeout.has_value()));
    if (changed_.wait(local_wait_limits(limit), done, op_) != WaitResult::kReady)
      throw TimeoutError(op_, -1, "not done within ", limit.timeout().count(), " ms, but still under way");
    if (error_) std::rethrow_exception(error_);
  }
  bool is_completed() override { return done_.load(std::memory_order_acquire); }

 private:
  const char* const op_;
  const std::shared_ptr<Membership> membership_;
  const void* const queue_;
  Futex changed_;
  std::atomic<bool> done_{false};
  std::exception_ptr error_;  // written before done_
};

// The future of a posted call on a GPU: `queued`, then the call's own event.
class GpuWork final : public WorkState {
 public:
  GpuWork(Work queued, std::shared_ptr<const GpuCall> call)
      : queued_(std::move(queued)), call_(std::move(call)) {}

  // The host waits for the result only with a timeout.
  void wait(std::optional<Milliseconds> timeout) override {
    const Deadline limit = Deadline::after(timeout.value_or(Milliseconds::max()));
    queued_.wait(timeout);
    while (timeout && !call_->done.done()) {
      if (limit.passed())
        throw TimeoutError("wait", -1, "not done within ", timeout->count(), " ms, but still under way");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (timeout) call_->done.synchronize();  // throws its errors
    current_stream(call_->device).wait(call_->done);
  }
  bool is_completed() override {
    if (!queued_.is_completed()) return false;
    try {
      queued_.wait({});
    } catch (const Error&) {
      return true;  // the call has failed
    }
    return call_->done.done();
  }

 private:
  const Work queued_;
  const std::shared_ptr<const GpuCall> call_;
};

// The future of an asynchronous call of a step that is captured. In the recording nothing has run yet.
class CapturedWork final : public WorkState {
 public:
  CapturedWork(uint64_t capture, std::shared_ptr<const GpuCall> call)
      : capture_(capture), call_(std::move(call)) {}

  void wait(std::optional<Milliseconds> timeout) override {
    if (timeout) refuse_capture("wait", "with a timeout the host waits, and it takes no part in a replay");
    check("wait");
    current_stream(call_->device).wait(call_->done);
  }
  bool is_completed() override {
    refuse_capture("is_completed", "the host takes no part in a replay");
    check("is_completed");
    return false;
  }

 private:
  void check(const char* op) const {
    if (capture_id() != capture_)
      throw StateError(op, "the work is a part of a captured step: wait for it within the step's function");
  }

  const uint64_t capture_;
  const std::shared_ptr<const GpuCall> call_;
};

// Thrown on all members, which are at the same point, so that the job goes on.
struct CaptureRefused : StateError {
  using StateError::StateError;
};

}  // namespace

void MatchedCall::gather(int root, ConstBlock in, std::vector<Block> out) {
  std::vector<ConstBlock> to_root(records.size());
  to_root[root] = in;
  out.resize(records.size());
  data().exchange_blocks(call, to_root, out);
}

void MatchedCall::scatter(int root, std::vector<ConstBlock> in, Block out) {
  std::vector<Block> from_root(records.size());
  from_root[root] = out;
  in.resize(records.size());
  data().exchange_blocks(call, in, from_root);
}

// A rank that is no member gets index_ -1 and no backend.
GroupState::GroupState(Setup setup)
    : world_(std::move(setup.world)),
      id_(setup.id),
      name_(std::move(setup.name)),
      members_(std::move(setup.members)),
      timeout_(setup.timeout ? *setup.timeout
               : world_      ? world_->timeout
                             : Milliseconds(600'000)),
      uses_device_library_(setup.uses_device_library.value_or(world_ && world_->uses_device_library)),
      queue_(world_ ? world_->posted : std::make_shared<PostedCalls>(), series()) {
  const auto found = std::ranges::find(members_, world_ ? world_->rank : 0);
  if (found == members_.end()) return;
  index_ = int(found - members_.begin());
  backend_ = size() == 1 ? make_single_rank_backend()
                         : make_backend({*world_, members_, index_, id_}, wait_limits({}));
  links_.emplace(world_.get(), *backend_, index_, uses_device_library_);
}

GroupState::~GroupState() {
  if (!links_ || !world_) return;
  if (world_->membership && world_->membership->is_rank())
    links_->retire(world_->device_calls());
  else
    gradus::internal::abandon(std::move(*links_));  // in a forked child, where CUDA cannot be used
}

WaitLimits GroupState::wait_limits(std::optional<Milliseconds> timeout) const {
  const Deadline deadline = Deadline::after(timeout.value_or(timeout_));
  return world_ ? WaitLimits{world_->membership.get(), deadline} : local_wait_limits(deadline);
}

void GroupState::check_member(std::string_view op) const {
  if (!world_) check_joined(op);
  if (!is_member())
    throw ValueError(op, "rank ", world_->rank, " is no member of group '", name_, "' of ranks ",
                     to_text(members_));
}

int GroupState::index_of(int rank, std::string_view op, std::string_view what) const {
  if (!world_) check_joined(op);
  const auto it = std::ranges::find(members_, rank);
  if (it == members_.end())
    throw ValueError(op, what, " ", rank, " is no member of group '", name_, "' of ranks ",
                     to_text(members_));
  return int(it - members_.begin());
}

std::string GroupState::backend_name() const { return size() > 1 ? world_->backend : "none"; }

Work GroupState::run(Collective collective, bool async, std::optional<Milliseconds> timeout) {
  check_member(collective.op);
  Capture* const capture = recording_capture();
  if (capture) check_capture(*capture, collective);
  if (collective.sizes.size() > kMaxSizes)
    throw ValueError(collective.op, "at most ", kMaxSizes, " sizes can be compared between ranks, got ",
                     collective.sizes.size());
  if (world_) world_->wait_for_collision_check(collective.op);
  const WaitLimits limits = wait_limits(timeout);
  limits.membership->check(collective.op);
  collective.record.backwards = backwards_.load();
  collective.record.dropped = dropped_.load();
  std::shared_ptr<GpuCall> gpu;
  if (const Device device = collective.device; device.type == DeviceType::kCUDA)
    gpu = std::make_shared<GpuCall>(device, Event::record(current_stream(device)), Event());
  Ref<Observer> observer(gradus::observer());
  const int64_t range =
      observer
          ? observer->announce(
                {.kind = RangeKind::kCollective, .name = collective.op, .bytes = collective.record.bytes})
          : -1;
  // A group of one also runs an async call at once, unless another call is in progress. A captured call runs on this
  // thread, which has the capture.
  if (!async || size() == 1 || capture) {
    const auto run_here = [&] {
      return queue_.try_run([&] {
        const RunningRange running(observer, range);
        execute(collective, limits, gpu.get());
      });
    };
    bool has_run = run_here();
    while (capture && !has_run) queue_.wait_until_idle(), has_run = run_here();
    if (has_run) {
      if (capture && async && gpu)
        return Work(Ref<WorkState>(make_ref<CapturedWork>(capture->id, std::move(gpu))));
      if (gpu) current_stream(gpu->device).wait(gpu->done);
      return Work();
    }
  }

  const auto state = make_ref<QueuedWork>(collective.op, world_ ? world_->membership : nullptr, queue_.id());
  const auto posted =
      world_ ? std::make_shared<WaitScope>(*world_->membership, Wait::posted(series())) : nullptr;
  // The posted call holds the group: Note [Groups that go first] in call_queue.h.
  queue_.post([self = Ref<GroupState>(this), state, limits, observer, range, posted, gpu,
               collective = std::move(collective)]() mutable {
    std::exception_ptr error;
    try {
      const RunningRange running(observer, range);
      self->execute(collective, limits, gpu.get());
    } catch (const RankKilled&) {
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    collective = {};  // releases its tensors before waiters go on
    state->finish(error);
  });
  Work work{Ref<WorkState>(state)};
  if (gpu) work = Work(Ref<WorkState>(make_ref<GpuWork>(std::move(work), std::move(gpu))));
  if (!async) work.wait();
  return work;
}

// Errors: StateError for a call that a replay cannot repeat. All members that run the same step throw it.
void GroupState::check_capture(const Capture& capture, const Collective& collective) const {
  if (collective.is_agreement && capture.device() != kCPU) return;
  if (collective.device != capture.device() || capture.device() == kCPU)
    refuse_capture(collective.op, "a replay does not call other ranks, but for tensors on the step's GPU");
  if (size() == 1) return;
  if (!uses_device_library_) refuse_capture(collective.op, kThroughHost);
  if (const CapturedCalls* const calls = CapturedCalls::of(capture))
    if (const GroupState& first = calls->group(); first.members() != members_)
      throw StateError(collective.op, "cannot be captured: group '", name_, "' has the ranks ",
                       to_text(members_), ", and the step's first call was of group '", first.name(),
                       "' with the ranks ", to_text(first.members()),
                       ": all groups of a step must have the same members");
}

void GroupState::execute(Collective& collective, const WaitLimits& limits, GpuCall* gpu) {
  if (collective.prepare && !collective.prepare(collective)) return;
  const uint64_t number = ++calls_;
  MatchedCall matched{*backend_, {collective.op, limits}, {}, {}};
  CallRecord record = collective.record;
  record.sequence = number;
  record.device = collective.device.type;
  record.device_index = collective.device.index;
  const std::string call = concat(collective.op, " #", number, " of group '", name_, "'");
  const auto move = [&] {
    if (!collective.move) return;
    gpu ? move_on_gpu(collective, matched, *gpu, call) : collective.move(matched);
  };
  if (!world_) {
    matched.records = {record};
    matched.sizes = {collective.sizes};
    return move();
  }

  world_->membership->check(collective.op);
  world_->calls.add(record, name_);
  try {
    WaitScope in_call(*world_->membership, Wait::for_call(collective.op, call, {series(), number}, members_));
    const auto messages = backend_->exchange(matched.call, to_message(record, collective.sizes));
    in_call.all_arrived();
    matched.records.resize(messages.size());
    matched.sizes.resize(messages.size());
    for (size_t i = 0; i < messages.size(); ++i)
      if (!from_message(messages[i], matched.records[i], matched.sizes[i]))
        matched.records[i].ndim = -1;  // malformed
    agree(matched, collective);
    move();
  } catch (const TimeoutError& error) {
    world_->membership->set_activity(Activity::kAfterTimeout, "", call);
    throw TimeoutError(collective.op, error.rank(), text_of(error), "\nlast collectives of rank ",
                       world_->rank, ", newest first:", world_->calls.text());
  }
}

// The call's stream waits for the caller's work. DeviceCalls watches calls of the library: no kernel may wait for a
// member that has gone. An error ends the job: the other members have the call under way, too. A captured call is not
// queued, but a launch of its graph is.
void GroupState::move_on_gpu(const Collective& collective, MatchedCall& matched, GpuCall& gpu,
                             const std::string& text) {
  const Call& call = matched.call;
  Capture* const capture = recording_capture();
  try {
    DeviceLinks::Link& link = links_->get(call, matched.records);
    const bool uses_library = link.uses_library(collective.record);
    if (capture && size() > 1 && !(uses_library && link.by_library))
      throw CaptureRefused(
          call.op, "cannot be captured: ",
          uses_library ? "the group has not connected its GPUs yet; make a call before" : kThroughHost);
    std::shared_ptr<DeviceCollectives> collectives = link.by_host;
    std::shared_ptr<DeviceCalls::Watched> watched;
    std::optional<IssueOrder::Turn> turn;
    if (uses_library) {
      wait_for_turn(turn.emplace(world_->issue_order), call);
      if (!link.by_library) links_->connect(call, link, size());
      collectives = link.by_library;
    }
    const Stream stream = capture ? capture->side_stream() : collectives->stream();
    if (uses_library && capture) {
      if (!capture->replay_hook)
        capture->replay_hook =
            make_ref<CapturedCalls>(Ref<GroupState>(this), matched.records[0].sequence, gpu.device);
      CapturedCalls::of(*capture)->add(collectives);
    } else if (uses_library) {
      watched = std::make_shared<DeviceCalls::Watched>(
          collective.connections.empty() ? std::vector{collectives} : collective.connections, stream,
          call.watch.deadline, call.op, text, series());
      world_->device_calls().watch(watched);
    }
    const StreamScope scope(stream);
    stream.wait(gpu.posted);
    for (const Tensor& x : collective.tensors) {
      record_use(x, stream);
      if (capture && x.device() == gpu.device) capture->use(x.storage());
    }
    matched.gpus = collectives.get();
    collective.move(matched);
    gpu.done = Event::record(stream);
    if (watched) watched->set_queued(gpu.done);
  } catch (const RankKilled&) {
    throw;
  } catch (const CaptureRefused&) {
    throw;
  } catch (...) {
    report_backward_failure(world_.get(), std::current_exception(), concat("failed in ", call.op).c_str());
    throw;
  }
}

// All members are in the call, so this exchange waits for none that the program keeps back.
void GroupState::wait_for_turn(IssueOrder::Turn& turn, const Call& call) {
  const uint64_t proposed = turn.proposed();
  uint64_t agreed = 0;
  for (const std::string& message :
       backend_->exchange(call, {reinterpret_cast<const char*>(&proposed), sizeof proposed})) {
    uint64_t number = 0;
    std::memcpy(&number, message.data(), std::min(message.size(), sizeof number));
    agreed = std::max(agreed, number);
  }
  turn.agree(agreed, series());
  turn.wait(call.op, call.watch);
}

// Checks the records and the collective's own condition. Every member has the same records, so all members
// throw the same error or none.
void GroupState::agree(MatchedCall& matched, const Collective& collective) const {
  if (const auto failure = find_mismatch(matched.records, members_, name_)) fail(matched, *failure);
  if (!collective.check) return;
  if (const auto failure = collective.check(matched)) fail(matched, *failure);
}

void GroupState::fail(const MatchedCall& matched, const Failure& failure) const {
  throw_failure(matched.call.op, world_->membership->report(failure));
}

// The majority's sizes count as right, and the first member that differs from them is at fault.
std::optional<Failure> find_size_mismatch(
    const MatchedCall& matched, const GroupState& group,
    const std::function<std::string(const std::vector<int64_t>&)>& text) {
  const auto votes = [&](const auto& sizes) { return std::ranges::count(matched.sizes, sizes); };
  const auto usual = std::ranges::max_element(matched.sizes, {}, votes);
  const auto mismatch =
      std::ranges::find_if(matched.sizes, [&](const auto& sizes) { return sizes != *usual; });
  if (mismatch == matched.sizes.end()) return std::nullopt;
  const auto rank_of = [&](auto it) { return group.members()[it - matched.sizes.begin()]; };
  return Failure{Failure::Kind::kMismatch, rank_of(mismatch),
                 concat("rank ", rank_of(mismatch), " called ", matched.call.op, " with ", text(*mismatch),
                        ", where rank ", rank_of(usual), " called it with ", text(*usual))};
}

std::optional<bool>& overridden_device_library() {
  thread_local std::optional<bool> overridden;
  return overridden;
}

Group make_group(const Group& parent, const GroupPlan& plan,
                 const std::function<std::vector<int>(const MatchedCall&)>& choose) {
  GroupState& state = parent.state();
  World* const world = state.world();
  int64_t id = 0;
  std::vector<int> members;
  Collective agree{.op = name_of(plan.op).data(), .record = {.op = plan.op}, .sizes = plan.values};
  // The id is the greatest proposal: number * size of the job + rank. No rank proposes a number twice, so all proposals
  // differ, also those of several threads. A proposal is in a field of the record that is not compared.
  if (world) agree.record.bytes = int64_t{++world->last_group_number} * world->size + world->rank;
  if (plan.equal_values)
    agree.check = [&](const MatchedCall& matched) {
      return find_size_mismatch(matched, state, to_text<int64_t>);
    };
  agree.move = [&](MatchedCall& matched) {
    for (const CallRecord& record : matched.records) id = std::max(id, record.bytes);
    members = choose(matched);
  };
  state.run(std::move(agree), false, {});
  if (!world) return Group(Ref<GroupState>(&state));  // a group of one: every part of it is the same group
  const auto number = uint32_t(id / world->size);
  for (uint32_t last = world->last_group_number; last < number;)
    if (world->last_group_number.compare_exchange_weak(last, number)) break;
  std::string name = plan.name;
  if (name.empty()) name = concat(plan.base.empty() ? state.name() : plan.base, '.', number);
  if (!plan.owner.empty()) name = world->name_for(plan.owner, number);
  try {
    return Group(make_ref<GroupState>(
        GroupState::Setup{Ref<World>(world), uint32_t(id), std::move(name), std::move(members),
                          plan.timeout.value_or(state.timeout()),
                          plan.uses_device_library.value_or(
                              overridden_device_library().value_or(state.uses_device_library()))}));
  } catch (const DistributedError&) {
    world->membership->check(name_of(plan.op));  // throws under the name of the function that the user called
    throw;
  }
}

}  // namespace gradus::dist::internal
