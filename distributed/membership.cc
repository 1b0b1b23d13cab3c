#include "gradus/distributed/membership.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace gradus::dist {

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
}

Membership::InCall::~InCall() {
  current_ = outer_;
  {
    std::lock_guard lock(membership_.mutex_);
    std::erase(membership_.calls_, this);
  }
  membership_.set_doing("outside of any collective, after " + text_);
}

void Membership::InCall::all_here() {
  std::lock_guard lock(membership_.mutex_);
  all_here_ = true;
}

// Groups without a common member may have the same number.
RankWait Membership::InCall::wait() const {
  RankWait wait{.call = concat(group_, '.', members_[0], '#', number_)};
  if (!all_here_) wait.ranks = RankSet(members_);
  return wait;
}

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

Membership::AwaitingCall::AwaitingCall(Membership& membership, const void* queue)
    : membership_(membership), queue_(queue) {
  std::lock_guard lock(membership_.mutex_);
  membership_.awaited_queues_.push_back(queue_);
}

Membership::AwaitingCall::~AwaitingCall() {
  std::lock_guard lock(membership_.mutex_);
  membership_.awaited_queues_.erase(std::ranges::find(membership_.awaited_queues_, queue_));
}

// A posted call that waits does not hold its rank up, unless the program waits for it.
RankStatus Membership::status() const {
  std::lock_guard lock(mutex_);
  RankStatus status{.rank = rank_, .left = has_left(rank_), .doing = doing_};
  const auto holds = [&](const void* queue) {
    return !queue || std::ranges::find(awaited_queues_, queue) != awaited_queues_.end();
  };
  bool program_waits = false;
  std::string awaited, under_way;
  for (const InCall* call : calls_) {
    RankWait wait = call->wait();
    wait.holds = holds(call->posted_);
    if (!wait.holds) wait.ranks = {};
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

void Membership::set_failed(const Failure& failure) {
  std::lock_guard lock(mutex_);
  if (failed()) return;
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
}

namespace {

// All members in one place: what one learns it tells the others directly.
class LocalMembership final : public Membership {
 public:
  struct Job {
    std::mutex mutex;  // one report at a time, so that all see the same one as the first
    std::deque<LocalMembership> members;
  };

  LocalMembership(Job& job, int rank, int world_size) : Membership(rank, world_size), job_(job) {}

  // A rank of its own has no others whom a child could mislead.
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

  // Threads of one process stop together, so that none is silent.
  std::vector<RankStatus> statuses() override {
    std::vector<RankStatus> statuses;
    for (const LocalMembership& member : job_.members)
      if (&member != this) statuses.push_back(member.status());
    return statuses;
  }

 private:
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
