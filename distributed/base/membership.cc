#include "gradus/distributed/base/membership.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <utility>

#include "gradus/distributed/base/blame.h"
#include "gradus/distributed/base/deadlock.h"
#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/base/still_threads.h"

namespace gradus::dist {

int internal::thread_number() {
  static thread_local const int number = int(syscall(SYS_gettid));
  return number;
}

std::string_view group_of(std::string_view call) { return call.substr(0, call.rfind('#')); }

uint64_t number_of(std::string_view call) {
  uint64_t number = 0;
  const size_t mark = call.rfind('#');
  if (mark != call.npos) std::from_chars(call.data() + mark + 1, call.data() + call.size(), number);
  return number;
}

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

bool RankStatus::awaits(int rank) const {
  return std::ranges::any_of(waits,
                             [&](const RankWait& wait) { return wait.holds && wait.ranks.contains(rank); });
}

void Membership::set_doing(std::string doing) {
  std::lock_guard lock(mutex_);
  if (!internal::posted_calls || !doing_.starts_with("in ")) doing_ = std::move(doing);
}

std::string Membership::doing() const {
  std::lock_guard lock(mutex_);
  return doing_;
}

namespace {
// A rank that has been in this many groups has no room to list the calls it has come to.
constexpr size_t kMostGroups = 1000;
// Messages to a rank count as calls of this group. Its only member is their sender.
uint32_t messages_to(int rank) { return uint32_t{1} << 30 | uint32_t(rank); }
}  // namespace

constinit thread_local Membership::InCall* Membership::InCall::current_ = nullptr;

Membership::InCall::InCall(Membership& membership, std::string text, uint32_t group, uint64_t number,
                           const std::vector<int>& members)
    : membership_(membership),
      text_(std::move(text)),
      group_(group),
      number_(number),
      members_(members),
      posted_(internal::posted_calls),
      outer_(std::exchange(current_, this)) {
  std::lock_guard lock(membership_.mutex_);
  membership_.calls_.push_back(this);
  const bool is_member = members_.size() > 1 || members_[0] == membership_.rank_;
  if (is_member && membership_.came_.size() < kMostGroups) membership_.came_[{group_, members_[0]}] = number_;
  ++membership_.moves_;
}

Membership::InCall::~InCall() {
  current_ = outer_;
  {
    std::lock_guard lock(membership_.mutex_);
    std::erase(membership_.calls_, this);
    ++membership_.moves_;
  }
  membership_.set_doing("outside of any collective, after " + text_);
}

void Membership::InCall::all_here() {
  std::lock_guard lock(membership_.mutex_);
  all_here_ = true;
  ++membership_.moves_;
}

RankWait Membership::InCall::wait() const {
  RankWait wait{.call = concat(group_, '.', members_[0], '#', number_)};
  if (!all_here_) wait.ranks = RankSet(members_);
  return wait;
}

void Membership::count_sent(int rank) {
  std::lock_guard lock(mutex_);
  if (came_.size() < kMostGroups) ++came_[{messages_to(rank), rank_}];
  ++moves_;
}

void Membership::count_received(int rank) {
  std::lock_guard lock(mutex_);
  ++received_[rank];
  ++moves_;
}

uint64_t Membership::next_message(int source) const {
  std::lock_guard lock(mutex_);
  const auto it = received_.find(source);
  return it == received_.end() ? 1 : it->second + 1;
}

Membership::Receiving::Receiving(Membership& membership, std::string text, int source)
    : source_{source},
      call_(membership, std::move(text), messages_to(membership.rank()), membership.next_message(source),
            source_) {}

Membership::Awaiting::Awaiting(Membership& membership, std::function<std::vector<int>()> missing,
                               Enough enough)
    : membership_(membership),
      missing_(std::move(missing)),
      enough_(enough),
      posted_(internal::posted_calls),
      call_(InCall::current()) {
  std::lock_guard lock(membership_.mutex_);
  membership_.awaiting_.push_back(this);
}

Membership::Awaiting::~Awaiting() {
  std::lock_guard lock(membership_.mutex_);
  std::erase(membership_.awaiting_, this);
}

Membership::AwaitingCall::AwaitingCall(Membership& membership, const void* queue, bool limited)
    : membership_(membership), queue_(queue), limited_(limited) {
  std::lock_guard lock(membership_.mutex_);
  membership_.awaited_calls_.push_back(this);
  ++membership_.moves_;
}

Membership::AwaitingCall::~AwaitingCall() {
  std::lock_guard lock(membership_.mutex_);
  std::erase(membership_.awaited_calls_, this);
  ++membership_.moves_;
}

Membership::Posted::Posted(Membership& membership, uint32_t group, const std::vector<int>& members)
    : membership_(membership), group_(group, members[0]) {
  std::lock_guard lock(membership_.mutex_);
  ++membership_.posted_[group_];
  ++membership_.moves_;
}

Membership::Posted::~Posted() {
  std::lock_guard lock(membership_.mutex_);
  const auto it = membership_.posted_.find(group_);
  if (--it->second == 0) membership_.posted_.erase(it);
  ++membership_.moves_;
}

Membership::ProgramThread::ProgramThread(Membership& membership) : membership_(membership) {
  std::lock_guard lock(membership_.mutex_);
  membership_.program_threads_.push_back(thread_);
  ++membership_.moves_;
}

Membership::ProgramThread::~ProgramThread() {
  std::lock_guard lock(membership_.mutex_);
  std::erase(membership_.program_threads_, thread_);
  ++membership_.moves_;
}

// Returns whether all known threads of this rank wait in calls for other members to come, and
// adds these threads.
bool Membership::all_wait(std::vector<int>& threads) const {
  for (const InCall* call : calls_) {
    if (call->all_here_) return false;
    threads.push_back(call->thread_);
  }
  for (const AwaitingCall* one : awaited_calls_) {
    if (one->limited_) return false;
    threads.push_back(one->thread_);
  }
  const auto waits_elsewhere = [](const Awaiting* one) { return !one->call_ || one->call_->all_here_; };
  const auto is_under_way = [&](const auto& posted) {
    return std::ranges::any_of(calls_, [&](const InCall* call) {
      return GroupKey(call->group_, call->members_[0]) == posted.first;
    });
  };
  return !calls_.empty() && came_.size() < kMostGroups && std::ranges::none_of(awaiting_, waits_elsewhere) &&
         std::ranges::all_of(posted_, is_under_way) && std::ranges::all_of(program_threads_, [&](int thread) {
           return std::ranges::count(threads, thread);
         });
}

// A posted call that waits does not hold its rank, unless the program waits for the posted call.
RankStatus Membership::status() const {
  std::lock_guard lock(mutex_);
  RankStatus status{.rank = rank_, .left = has_left(rank_), .doing = doing_};
  if (all_wait(status.threads)) {
    status.stuck = moves_;
    for (const auto& [group, number] : came_) status.came[concat(group.first, '.', group.second)] = number;
  }
  const auto holds = [&](const void* queue) {
    return !queue || std::ranges::count(awaited_calls_, queue, &AwaitingCall::queue_) > 0;
  };
  bool program_waits = false;
  std::string awaited, under_way;
  for (const InCall* call : calls_) {
    RankWait wait = call->wait();
    wait.holds = holds(call->posted_);
    if (!call->posted_) {
      program_waits = true;
      status.doing = "in " + call->text_;
    } else if (wait.holds) {
      awaited = "in " + call->text_;
    } else {
      under_way += concat(", with ", call->text_, " under way");
    }
    status.waits.push_back(std::move(wait));
  }
  for (const Awaiting* one : awaiting_) {
    if (!holds(one->posted_) || (one->call_ && !one->call_->all_here_)) continue;
    program_waits = program_waits || !one->posted_;
    status.waits.push_back({.ranks = RankSet(one->missing_()), .any = one->enough_ == Awaiting::kAny});
  }
  if (program_waits) return status;
  if (!awaited.empty())
    status.doing = awaited;
  else if (!under_way.empty())
    status.doing =
        concat(status.doing.starts_with("out") ? status.doing : "outside of any collective", under_way);
  return status;
}

void Membership::add_program_threads(std::vector<int>& to) const {
  std::lock_guard lock(mutex_);
  to.insert(to.end(), program_threads_.begin(), program_threads_.end());
}

void Membership::set_failed(const Failure& failure) {
  std::lock_guard lock(mutex_);
  if (failed()) return;
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
}

namespace {

// All members are in one process, and tell each other directly.
class LocalMembership final : public Membership {
 public:
  struct Job {
    std::mutex mutex;  // one report at a time, so that all have the same first one
    std::deque<LocalMembership> members;
    std::atomic<TimePoint> next_look{};
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

  bool looks_for_deadlocks() const override { return world_size() > 1; }
  // Looks twice: a deadlock counts if nobody has moved in between.
  void look_for_deadlock() override {
    constexpr Milliseconds kPause{100};
    TimePoint next = job_.next_look.load();
    if (!is_rank() || failed() || now() < next ||
        !job_.next_look.compare_exchange_strong(next, now() + kPause))
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
  // Returns still_threads for the threads that belong to no rank. A simulation has no such threads.
  uint64_t other_threads(const std::vector<RankStatus>& statuses) const {
    if (internal::Simulation::current()) return 1;
    std::vector<int> known;
    for (const LocalMembership& member : job_.members) member.add_program_threads(known);
    for (const RankStatus& status : statuses)
      known.insert(known.end(), status.threads.begin(), status.threads.end());
    return internal::still_threads(known);
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
