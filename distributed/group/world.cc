// World: the state of one rank that all its process groups share, and the process-wide or thread-wide lookup
// of it. Also CallLog, a ring buffer of the rank's last collectives for the texts of timeouts.
#include "gradus/distributed/group/world.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/internal/host_copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::dist::internal {

void CallLog::add(const CallRecord& record, const std::string& group) {
  constexpr size_t kMaxCalls = 256;  // older calls are dropped
  std::lock_guard lock(mutex_);
  entries_.push_front({record, group});
  if (entries_.size() > kMaxCalls) entries_.pop_back();
}

std::string CallLog::text() const {
  constexpr int kMaxLines = 16;  // more do not help the reader
  std::lock_guard lock(mutex_);
  const auto what = [](const Entry& entry) {
    return concat(describe(entry.record), " in group '", entry.group, "'");
  };
  std::string text;
  auto newest = entries_.begin();
  for (int line = 0; line < kMaxLines && newest != entries_.end(); ++line) {
    const std::string call = what(*newest);
    const auto other = std::find_if(newest, entries_.end(), [&](const Entry& e) { return what(e) != call; });
    text += concat("\n  #", newest->record.sequence, ' ', call);
    if (other - newest > 1) text += concat(" and ", other - newest - 1, " like it before");
    newest = other;
  }
  return text;
}

// What a failed job has left on streams concerns no later job.
World::~World() {
  if (device_messages_ && membership->is_rank()) device_messages_->stop();
  device_calls_ = nullptr;
  for (const auto& [device, stream] : streams_) gradus::internal::native_stream(stream)->recover();
}

DeviceCalls& World::device_calls() {
  std::call_once(device_calls_made_,
                 [&] { device_calls_ = std::make_unique<DeviceCalls>(membership, posted); });
  return *device_calls_;
}

const std::shared_ptr<DeviceMessages>& World::device_messages() {
  std::call_once(device_messages_made_, [&] { device_messages_ = std::make_shared<DeviceMessages>(*this); });
  return device_messages_;
}

// Polls until the time `collision_check_end` has passed; returns at once if it was never set.
void World::wait_for_collision_check(std::string_view op) const {
  constexpr Milliseconds kLookAgain{10};
  while (collision_check_end != TimePoint() && now() < collision_check_end && membership->is_rank()) {
    membership->check(op);
    std::this_thread::sleep_for(kLookAgain);
  }
}

// Polls the posted calls (queued collectives of this rank). Returns when all have ended, 5 s after a failure
// of the job, or when another rank waits for this rank in a call that this rank will not make.
void World::finish_calls() {
  constexpr Milliseconds kLookAgain{100}, kAfterFailure{5'000};
  const TimePoint begin = now();
  const auto ended = [&] { return posted->none(); };
  // Returns whether a rank blocks on this rank, and in none of the calls that this rank still has posted.
  const auto awaited_elsewhere = [&](const RankStatus& status) {
    // A status older than this function's begin does not count: this rank may have entered that call since.
    if (status.silent >= now() - begin) return false;
    bool awaited = false;
    for (const RankWait& wait : status.waits) {
      if (wait.blocks && posted->has(wait.call.series)) return false;
      awaited = awaited || (wait.blocks && wait.ranks.contains(rank));
    }
    return awaited;
  };
  std::optional<Deadline> end;
  while (!ended() && !(end && end->passed())) {
    posted->changed.wait(local_wait_limits(Deadline::after(kLookAgain)), ended, "the end of posted calls");
    if (membership->failed()) {
      if (!end) end = Deadline::after(kAfterFailure);
    } else if (!ended() && std::ranges::any_of(membership->statuses(), awaited_elsewhere)) {
      return;
    }
  }
}

void World::finish_closing() {
  if (device_messages_) device_messages_->retire();
  if (device_calls_) device_calls_->finish_closing(Milliseconds(500));
}

Stream World::stream_of(Device device) {
  const std::lock_guard lock(streams_mutex_);
  const auto found = streams_.find(device.index);
  return found != streams_.end() ? found->second
                                 : streams_.emplace(device.index, Stream::create(device)).first->second;
}

std::string World::name_for(std::string_view owner, uint32_t number) {
  std::lock_guard lock(owners_mutex_);
  const bool is_first = owners_.emplace(owner).second;
  return is_first ? std::string(owner) : concat(owner, '.', number);
}

HostMemory World::share(const std::string& key, size_t bytes, const Fill& fill) {
  return share_on_host(*this, key, bytes, fill);
}

// The n-th call for `what` is a compare-and-set of one key of the job's store. Ranks that are threads count
// their calls separately; a process counts over all jobs that it joins.
std::string World::value_of_first_caller(const std::string& what, const std::string& value) {
  static auto& calls_of_process = *new Calls;
  Calls& calls = backend == "local" ? calls_of_thread_ : calls_of_process;
  int call;
  {
    std::lock_guard lock(calls.mutex);
    call = calls.counts[what]++;
  }
  return store->compare_set(concat("alike/", what, '/', call), "", value);
}

bool uses_nccl(std::string_view op, std::string_view backend) {
  for (const char* known : {"cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo", "cuda:nccl", "nccl"})
    if (backend == known) return true;
  for (const char* known : {"cpu:gloo,cuda:gloo", "cuda:gloo,cpu:gloo", "cpu:gloo", "gloo"})
    if (backend == known) return false;
  throw ValueError(op, "backend is '", backend, "'; expected 'cpu:gloo,cuda:nccl', 'nccl' or 'gloo'",
                   backend == "local" ? ": ranks as threads come from dist::run_ranks" : "");
}

World* World::current() {
  if (const Ref<Job>& job = Context::current().job) return static_cast<World*>(job.get());
  return process_world().get();
}

Ref<World> World::process_world() { return Ref<World>(static_cast<World*>(Job::of_process().get())); }

Ref<World> World::exchange_process_world(Ref<World> world) {
  return Ref<World>(static_cast<World*>(exchange_process_job(Ref<Job>(world.get())).get()));
}

}  // namespace gradus::dist::internal
