// Membership: a rank's connection to the job's membership service: which ranks have left, the failure that
// ended the job, and what each rank does and waits for.
//
// A failure ends the whole job, not a group. The first report counts, and every rank receives it. All calls
// of all ranks that wait then, or begin later, throw it. There are two implementations: LocalMembership for
// ranks as threads, and TcpMembership for processes, a connection to the store's server, which detects the
// death of a rank by the broken connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/health/wait_scope.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist {

// Thread-safe. All ranks are ranks in the job.
class Membership {
 public:
  Membership(int rank, int world_size)
      : rank_(rank), world_size_(world_size), process_(gradus::internal::fork_count()), left_(world_size) {}
  virtual ~Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // Returns whether the job has failed. Costs one atomic load.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Failure failure() const;  // only once failed()
  // False in a child made by fork(), which has no threads of the rank and must not communicate as the rank.
  bool is_rank() const { return process_ == gradus::internal::fork_count(); }
  // Errors: ConnectionError in a child that the rank has forked.
  virtual void check_is_rank(std::string_view op) const;
  // Calls check_is_rank, and throws the job's failure if there is one.
  void check(std::string_view op) const {
    check_is_rank(op);
    if (failed()) throw_failure(op, failure());
  }
  // Returns whether `rank` has left the job in order. Messages that it sent before can still be received.
  bool has_left(int rank) const { return left_[rank].load(std::memory_order_acquire) != 0; }
  // Returns whether there are other ranks and all of them have left.
  bool others_left() const;

  // Reports the failure to all ranks. Returns the failure that counts: this one, or one that was reported
  // earlier. Blocks for at most about a second, even if the server does not answer.
  virtual Failure report(const Failure& failure) = 0;
  // Leaves the job in order. Later reports of this rank are ignored.
  virtual void leave() = 0;
  // Sets what this rank's program does now: it is in a call of `op` that errors name `call` (kInCall), or has
  // ended it. Does not communicate: other ranks receive it with the next heartbeat. On the thread of a
  // CallQueue, ignored while the program is in a call.
  void set_activity(Activity activity, std::string_view op, std::string call);
  // Returns the name of the call that the program is in if it is a call of `op`, else `op`.
  std::string call_text(std::string_view op) const;
  // Count a message that is about to be sent to `rank`, and a message that has been received from `rank`, for
  // deadlock detection. A receive that is counted late can only hide a deadlock.
  void count_sent(int rank);
  void count_received(int rank);
  // Returns the id of the next message that this rank will receive from `source`.
  CallId next_message(int source) const;
  // Returns this rank's status, computed from its WaitScopes. `stuck` considers only threads that are in a
  // call or registered by Wait::program_thread; the caller must check other threads (still_threads.h).
  RankStatus status() const;
  // Reports a failure if ranks wait for each other forever. Waits call it between time slices.
  virtual void check_for_deadlock() {}
  // Returns whether check_for_deadlock is implemented. If not, the store's server checks.
  virtual bool checks_for_deadlocks() const { return false; }
  // Returns the other ranks' last statuses, within about a second; empty if the server does not answer.
  virtual std::vector<RankStatus> statuses() = 0;

 protected:
  // Implementations call these when the server, or another thread, reports a failure or a leave.
  void set_failed(const Failure& failure);  // ignored after the first one
  void set_left(int rank) { left_[rank].store(1, std::memory_order_release); }
  void add_program_threads(std::vector<int>& to) const;  // appends thread ids of Wait::program_thread scopes

 private:
  friend class WaitScope;
  bool is_stuck(std::vector<int>& threads) const;
  void begin_wait(const WaitScope& scope);
  void end_wait(const WaitScope& scope);

  const int rank_, world_size_, process_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Failure failure_;
  Activity activity_ = Activity::kUnknown;
  std::string op_, call_;  // of activity_
  std::vector<const WaitScope*> waits_;
  std::map<CallSeries, uint64_t> arrived_;  // number of the last call entered, or of messages sent
  std::map<int, uint64_t> received_;        // number of messages received, by source
  uint64_t change_count_ = 1;               // of the members that `stuck` is computed from
  std::vector<std::atomic<char>> left_;     // per rank: 1 if it has left
};

// Makes the memberships of world_size ranks that are threads of this process and share their state.
std::vector<std::shared_ptr<Membership>> make_local_memberships(int world_size);

}  // namespace gradus::dist
