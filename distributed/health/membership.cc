// Membership: the registry of a rank's waits (WaitScope), from which status() derives the rank's state for
// other ranks and for deadlock detection; and LocalMembership, for ranks that are threads of one process and
// read each other's registry. A posted call is one that a queue's thread runs for the program. mutex_ guards
// all members that are not atomic.
#include "gradus/distributed/health/membership.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/health/blame.h"
#include "gradus/distributed/health/deadlock.h"
#include "gradus/distributed/health/still_threads.h"

namespace gradus::dist {

namespace {

// A rank with calls in more series has no room to list the calls at which it has arrived.
constexpr size_t kMaxSeries = 1000;

CallSeries messages(int source, int destination) {
  return {CallSeries::Kind::kMessage, uint32_t(destination), source};
}

// Returns the calling thread's number in the system (its thread id).
int thread_number() {
  static thread_local const int number = int(syscall(SYS_gettid));
  return number;
}

}  // namespace

void Membership::check_is_rank(std::string_view op) const {
  if (!is_rank())
    throw ConnectionError(op, rank_, "rank ", rank_,
                          " made this process by fork(): it is no rank, and must not take the "
                          "place of one. Call it in the rank itself, or start another program");
}

Failure Membership::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

bool Membership::others_left() const {
  for (int rank = 0; rank < world_size_; ++rank)
    if (rank != rank_ && !has_left(rank)) return false;
  return world_size_ > 1;
}

void Membership::set_activity(Activity activity, std::string_view op, std::string call) {
  std::lock_guard lock(mutex_);
  if (internal::current_call_queue && activity_ == Activity::kInCall) return;
  activity_ = activity;
  op_ = op;
  call_ = std::move(call);
}

std::string Membership::call_text(std::string_view op) const {
  if (const WaitScope* const call = WaitScope::current_call())
    return call->wait().op == op ? call->wait().text : std::string(op);
  std::lock_guard lock(mutex_);
  return activity_ == Activity::kInCall && op_ == op ? call_ : std::string(op);
}

void Membership::count_sent(int rank) {
  std::lock_guard lock(mutex_);
  if (arrived_.size() < kMaxSeries) ++arrived_[messages(rank_, rank)];
  ++change_count_;
}

void Membership::count_received(int rank) {
  std::lock_guard lock(mutex_);
  ++received_[rank];
  ++change_count_;
}

CallId Membership::next_message(int source) const {
  std::lock_guard lock(mutex_);
  const auto it = received_.find(source);
  return {messages(source, rank_), it == received_.end() ? 1 : it->second + 1};
}

constinit thread_local const WaitScope* WaitScope::current_call_ = nullptr;

WaitScope::WaitScope(Membership& membership, Wait wait)
    : membership_(membership),
      wait_(std::move(wait)),
      runs_on_(internal::current_call_queue),
      thread_(thread_number()),
      outer_call_(current_call_) {
  if (wait_.kind == Wait::Kind::kCall) {
    if (wait_.members.empty()) wait_.members = {&wait_.call.series.first, 1};
    current_call_ = this;
  }
  membership_.begin_wait(*this);
}

WaitScope::~WaitScope() {
  membership_.end_wait(*this);
  if (wait_.kind != Wait::Kind::kCall) return;
  current_call_ = outer_call_;
  membership_.set_activity(Activity::kOutside, "", wait_.text);
}

void WaitScope::all_arrived() {
  std::lock_guard lock(membership_.mutex_);
  all_arrived_ = true;
  ++membership_.change_count_;
}

RankWait WaitScope::rank_wait() const {
  RankWait wait{.call = wait_.call};
  if (!all_arrived_) wait.ranks = RankSet({wait_.members.begin(), wait_.members.end()});
  return wait;
}

void Membership::begin_wait(const WaitScope& scope) {
  std::lock_guard lock(mutex_);
  waits_.push_back(&scope);
  if (scope.wait_.kind == Wait::Kind::kCall && arrived_.size() < kMaxSeries &&
      std::ranges::count(scope.wait_.members, rank_) > 0)
    arrived_[scope.wait_.call.series] = scope.wait_.call.sequence;
  if (scope.wait_.kind != Wait::Kind::kRanks) ++change_count_;
}

void Membership::end_wait(const WaitScope& scope) {
  std::lock_guard lock(mutex_);
  std::erase(waits_, &scope);
  if (scope.wait_.kind != Wait::Kind::kRanks) ++change_count_;
}

// Returns whether all known threads of this rank wait in calls for other members to arrive. Appends the ids
// of the threads that wait in a call or for a queue to `threads`. Requires mutex_.
bool Membership::is_stuck(std::vector<int>& threads) const {
  std::vector<CallSeries> series;
  for (const WaitScope* scope : waits_) {
    const bool in_call = scope->wait_.kind == Wait::Kind::kCall;
    if (in_call) series.push_back(scope->wait_.call.series);
    if (in_call || scope->wait_.kind == Wait::Kind::kQueue) threads.push_back(scope->thread_);
  }
  const auto is_stuck = [&](const WaitScope* scope) {
    switch (scope->wait_.kind) {
      case Wait::Kind::kCall:
        return !scope->all_arrived_;
      case Wait::Kind::kRanks:
        return scope->outer_call_ && !scope->outer_call_->all_arrived_;
      case Wait::Kind::kQueue:
        return !scope->wait_.has_time_limit;
      case Wait::Kind::kPosted:  // a posted call that has not begun may begin
        return std::ranges::count(series, scope->wait_.call.series) > 0;
      case Wait::Kind::kProgram:
        return std::ranges::count(threads, scope->thread_) > 0;
    }
    return false;
  };
  return !series.empty() && arrived_.size() < kMaxSeries && std::ranges::all_of(waits_, is_stuck);
}

// A posted call that waits does not block its rank, unless the program waits for the call's queue.
RankStatus Membership::status() const {
  std::lock_guard lock(mutex_);
  RankStatus status{.rank = rank_, .has_left = has_left(rank_), .activity = activity_, .call = call_};
  if (is_stuck(status.threads)) {
    status.stuck = change_count_;
    status.arrived = arrived_;
  }
  const auto blocks = [&](const WaitScope* scope) {
    return !scope->runs_on_ || std::ranges::any_of(waits_, [&](const WaitScope* other) {
      return other->wait_.kind == Wait::Kind::kQueue && other->wait_.queue == scope->runs_on_;
    });
  };
  bool program_waits = false;
  const WaitScope* awaited = nullptr;
  for (const WaitScope* scope : waits_) {
    if (scope->wait_.kind != Wait::Kind::kCall) continue;
    RankWait& wait = status.waits.emplace_back(scope->rank_wait());
    wait.blocks = blocks(scope);
    if (!scope->runs_on_) {
      program_waits = true;
      status.activity = Activity::kInCall;
      status.call = scope->wait_.text;
    } else if (wait.blocks) {
      awaited = scope;
    } else {
      status.posted.push_back(scope->wait_.text);
    }
  }
  for (const WaitScope* scope : waits_) {
    const WaitScope* const call = scope->outer_call_;
    if (scope->wait_.kind != Wait::Kind::kRanks || !blocks(scope) || (call && !call->all_arrived_)) continue;
    program_waits = program_waits || !scope->runs_on_;
    status.waits.push_back({.ranks = RankSet(scope->wait_.missing()), .any = scope->wait_.any});
  }
  if (program_waits || awaited) {
    status.posted.clear();
    if (program_waits) return status;
    status.activity = Activity::kInCall;
    status.call = awaited->wait_.text;
  } else if (!status.posted.empty() && status.activity != Activity::kOutside) {
    status.activity = Activity::kOutside;
    status.call.clear();
  }
  return status;
}

void Membership::add_program_threads(std::vector<int>& to) const {
  std::lock_guard lock(mutex_);
  for (const WaitScope* scope : waits_)
    if (scope->wait_.kind == Wait::Kind::kProgram) to.push_back(scope->thread_);
}

void Membership::set_failed(const Failure& failure) {
  std::lock_guard lock(mutex_);
  if (failed()) return;
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
}

namespace {

// The membership of a rank that is a thread. All members share one Job.
class LocalMembership final : public Membership {
 public:
  struct Job {
    std::mutex mutex;  // serializes reports, so that all members have the same first failure
    std::deque<LocalMembership> members;
    std::atomic<TimePoint> next_check{};  // the earliest time of the next search for deadlocks
  };

  LocalMembership(Job& job, int rank, int world_size) : Membership(rank, world_size), job_(job) {}

  // A job of one rank has no other ranks that a forked child could mislead.
  void check_is_rank(std::string_view op) const override {
    if (world_size() > 1) Membership::check_is_rank(op);
  }

  Failure report(const Failure& failure) override {
    if (!is_rank()) return failure;
    std::lock_guard lock(job_.mutex);
    if (!failed() && !has_left(rank()))
      for (LocalMembership& member : job_.members) member.set_failed(failure);
    return failed() ? this->failure() : failure;
  }

  void leave() override {
    if (!is_rank()) return;
    std::lock_guard lock(job_.mutex);
    for (LocalMembership& member : job_.members) member.set_left(rank());
  }

  // Threads of one process stop together, so no rank is ever silent.
  std::vector<RankStatus> statuses() override {
    std::vector<RankStatus> statuses = all_statuses();
    std::erase_if(statuses, [&](const RankStatus& status) { return status.rank == rank(); });
    return statuses;
  }

  bool checks_for_deadlocks() const override { return world_size() > 1; }
  // Looks twice: a deadlock counts if no rank and no other thread has made progress in between.
  void check_for_deadlock() override {
    constexpr Milliseconds kPause{100};
    TimePoint next = job_.next_check.load();
    if (!is_rank() || failed() || now() < next ||
        !job_.next_check.compare_exchange_strong(next, now() + kPause))
      return;
    const std::vector<RankStatus> first = all_statuses();
    const std::vector<int> ranks = find_deadlock(first);
    if (ranks.empty()) return;
    const uint64_t others = other_threads(first);
    const std::vector<RankStatus> second = all_statuses();
    const auto is_still = [&](int rank) { return first[rank].stuck == second[rank].stuck; };
    if (others != 0 && std::ranges::all_of(ranks, is_still) && other_threads(second) == others)
      report(deadlock_failure(second, ranks));
  }

 private:
  std::vector<RankStatus> all_statuses() const {
    std::vector<RankStatus> statuses;
    for (const LocalMembership& member : job_.members) statuses.push_back(member.status());
    return statuses;
  }
  // Returns blocked_threads_id for the threads that belong to no rank. A simulation has no such threads.
  uint64_t other_threads(const std::vector<RankStatus>& statuses) const {
    if (internal::Simulation::current()) return 1;
    std::vector<int> known;
    for (const LocalMembership& member : job_.members) member.add_program_threads(known);
    for (const RankStatus& status : statuses)
      known.insert(known.end(), status.threads.begin(), status.threads.end());
    return internal::blocked_threads_id(known);
  }

  Job& job_;
};

}  // namespace

std::vector<std::shared_ptr<Membership>> make_local_memberships(int world_size) {
  const auto job = std::make_shared<LocalMembership::Job>();
  std::vector<std::shared_ptr<Membership>> memberships;
  for (int rank = 0; rank < world_size; ++rank)
    memberships.emplace_back(job, &job->members.emplace_back(*job, rank, world_size));
  return memberships;
}

}  // namespace gradus::dist
