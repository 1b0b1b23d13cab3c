// Membership: who of the job's ranks is alive, and the failure that ended the job, once there is one.
//
// A failure is the job's, not a group's: the first report counts, every rank hears of it, and all its calls
// that are waiting, or come later, throw it. LocalMembership (ranks as threads) and TcpMembership (a
// connection to the store's server, on which a death shows at once) implement it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gradus/distributed/deadline.h"
#include "gradus/distributed/error.h"
#include "gradus/tensor/fork.h"

namespace gradus::dist {

// What a rank is doing, as far as others know: for the text of timeouts.
struct RankStatus {
  int rank = 0;
  bool left = false;
  Milliseconds silent{0};  // since its last sign of life
  std::string
      doing;  // "in all_reduce #12 of group 'world'", "outside of any collective, after #11 ..."; "" unknown
  std::vector<int> awaits = {};  // the ranks that it waits for; empty when its program runs on
};

namespace internal {
// Of a thread that runs calls which its rank's program has posted, and goes on meanwhile.
inline constinit thread_local bool runs_posted_calls = false;
}  // namespace internal

class Membership {
 public:
  Membership(int rank, int world_size)
      : rank_(rank), world_size_(world_size), process_(gradus::internal::fork_count()), left_(world_size) {}
  virtual ~Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // Whether the job has failed; one atomic load.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Failure failure() const;  // only once failed()
  // Whether this process is the rank, or the child that a rank has forked: that is no rank, must not say anything for it,
  // and has none of its threads.
  bool is_rank() const { return process_ == gradus::internal::fork_count(); }
  // Errors: ConnectionError in such a child.
  virtual void check_is_rank(std::string_view op) const;
  // The same; and throws the job's failure, if there is one.
  void check(std::string_view op) const {
    check_is_rank(op);
    if (failed()) throw_failure(op, failure());
  }
  // `rank` has ended in order: what it sent before can still be received, nothing more will come.
  bool has_left(int rank) const { return left_[rank].load(std::memory_order_acquire) != 0; }
  // Whether there are other ranks, and all of them have left.
  bool others_left() const;

  // Tells all ranks; returns the failure that counts, which may be an earlier one. Returns within about a
  // second even when nobody answers.
  virtual Failure report(const Failure& failure) = 0;
  // This rank ends in order. Later reports are ignored.
  virtual void leave() = 0;
  // What this rank does now; cheap: kept here, sent to others now and then. Posted calls are apart.
  void set_doing(std::string doing);
  std::string doing() const;  // as this thread, or one of its kind, has set it
  // While one lives, a thread of this rank waits for the ranks that `missing` returns, on any thread.
  class Awaiting {
   public:
    Awaiting(Membership& membership, std::function<std::vector<int>()> missing);
    ~Awaiting();
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;

   private:
    friend class Membership;
    Membership& membership_;
    const std::function<std::vector<int>()> missing_;
    const bool posted_;
  };
  // While one lives, the program waits for a call that it has posted.
  class AwaitingCall {
   public:
    explicit AwaitingCall(Membership& membership);
    ~AwaitingCall();
    AwaitingCall(const AwaitingCall&) = delete;
    AwaitingCall& operator=(const AwaitingCall&) = delete;

   private:
    Membership& membership_;
  };
  // What others may know of this rank.
  RankStatus status() const;
  // The other ranks' last known state. Returns within about a second; empty when the store cannot be asked.
  virtual std::vector<RankStatus> statuses() = 0;

 protected:
  // Implementations call these as they learn.
  void set_failed(const Failure& failure);  // the first one stays
  void set_left(int rank) { left_[rank].store(1, std::memory_order_release); }

 private:
  const int rank_, world_size_, process_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Failure failure_;
  std::string doing_[2];  // of the program, of posted calls
  bool posted_last_ = false;
  std::vector<const Awaiting*> awaiting_;
  int awaited_calls_ = 0;
  std::vector<std::atomic<char>> left_;
};

// For ranks that are threads: world_size members that share what they know.
std::vector<std::shared_ptr<Membership>> make_local_memberships(int world_size);

}  // namespace gradus::dist
