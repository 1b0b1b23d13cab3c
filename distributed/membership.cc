#include "gradus/distributed/membership.h"

#include <algorithm>
#include <deque>

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

void Membership::set_doing(std::string doing) {
  std::lock_guard lock(mutex_);
  posted_last_ = internal::runs_posted_calls;
  doing_[posted_last_] = std::move(doing);
}

std::string Membership::doing() const {
  std::lock_guard lock(mutex_);
  return doing_[internal::runs_posted_calls];
}

Membership::Awaiting::Awaiting(Membership& membership, std::function<std::vector<int>()> missing)
    : membership_(membership), missing_(std::move(missing)), posted_(internal::runs_posted_calls) {
  std::lock_guard lock(membership_.mutex_);
  membership_.awaiting_.push_back(this);
}

Membership::Awaiting::~Awaiting() {
  std::lock_guard lock(membership_.mutex_);
  std::erase(membership_.awaiting_, this);
}

Membership::AwaitingCall::AwaitingCall(Membership& membership) : membership_(membership) {
  std::lock_guard lock(membership_.mutex_);
  ++membership_.awaited_calls_;
}

Membership::AwaitingCall::~AwaitingCall() {
  std::lock_guard lock(membership_.mutex_);
  --membership_.awaited_calls_;
}

// A posted call that waits does not hold its rank up, unless the program waits for it.
RankStatus Membership::status() const {
  std::lock_guard lock(mutex_);
  RankStatus status{.rank = rank_, .left = has_left(rank_)};
  bool waits = false;
  const auto add = [&](bool posted) {
    for (const Awaiting* one : awaiting_) {
      if (one->posted_ != posted) continue;
      waits = true;
      for (int rank : one->missing_())
        if (std::ranges::find(status.awaits, rank) == status.awaits.end()) status.awaits.push_back(rank);
    }
  };
  add(false);
  if (waits) {
    status.doing = doing_[0];
  } else if (awaited_calls_ > 0) {
    add(true);
    status.doing = doing_[1];
  } else {
    status.doing = doing_[posted_last_];
    if (posted_last_ && status.doing.starts_with("in "))
      status.doing = concat("outside of any collective, with ", status.doing.substr(3), " under way");
  }
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
