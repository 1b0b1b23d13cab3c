// Membership: which of the job's ranks are alive, and the failure that ended the job, once there is one.
//
// A failure ends the whole job, not a group. The first report counts, and every rank receives it. All calls
// of all ranks that wait then, or begin later, throw it. There are two implementations: LocalMembership for
// ranks as threads, and TcpMembership, a connection to the store's server on which a death shows at once.
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
  // Returns whether this process is the rank. A child that the rank has forked is no rank: it has none of the
  // rank's threads, and must not speak for it.
  bool is_rank() const { return process_ == gradus::internal::fork_count(); }
  // Errors: ConnectionError in a child that the rank has forked.
  virtual void check_is_rank(std::string_view op) const;
  // Does the same, and throws the job's failure if there is one.
  void check(std::string_view op) const {
    check_is_rank(op);
    if (failed()) throw_failure(op, failure());
  }
  // Returns whether `rank` has ended in order. What it sent before can still be received; nothing
  // more will come.
  bool has_left(int rank) const { return left_[rank].load(std::memory_order_acquire) != 0; }
  // Returns whether there are other ranks and all of them have left.
  bool others_left() const;

  // Reports the failure to all ranks. Returns the failure that counts, which may be an earlier one. Returns
  // within about a second even if nobody answers.
  virtual Failure report(const Failure& failure) = 0;
  // Ends this rank in order. Its later reports are ignored.
  virtual void leave() = 0;
  // Sets what this rank's program does now: in a call of `op` that errors name `call`, or after that call. Cheap:
  // other ranks receive it with the next heartbeat. A posted call does not replace a call of the program.
  void set_activity(Activity activity, std::string_view op, std::string call);
  // Returns the name of the call that the program is in if it is a call of `op`, else `op`.
  std::string call_text(std::string_view op) const;
  // Count a message that is about to be sent to `rank`, and a message that has been received from `rank`. A
  // receive that is counted late can only hide a deadlock.
  void count_sent(int rank);
  void count_received(int rank);
  // Returns the id of the next message from `source` to this rank.
  CallId next_message(int source) const;
  // Returns what others may know of this rank. For `stuck`, a thread counts only if it is in a call or
  // of the program (Wait::program_thread).
  RankStatus status() const;
  // Ends the job if ranks wait for each other forever. Waits call it now and then.
  virtual void check_for_deadlock() {}
  // Returns whether check_for_deadlock looks at all. If not, the store's server looks.
  virtual bool checks_for_deadlocks() const { return false; }
  // Returns the other ranks' last known state, within about a second; empty if the store cannot be asked.
  virtual std::vector<RankStatus> statuses() = 0;

 protected:
  // Implementations call these when the news arrives.
  void set_failed(const Failure& failure);  // the first one stays
  void set_left(int rank) { left_[rank].store(1, std::memory_order_release); }
  void add_program_threads(std::vector<int>& to) const;

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
  std::map<CallSeries, uint64_t> arrived_;  // the last call's number; for messages: how many were sent
  std::map<int, uint64_t> received_;        // messages, by source
  uint64_t moves_ = 1;                      // counts changes of all that `stuck` is computed from
  std::vector<std::atomic<char>> left_;
};

// Makes the memberships of world_size ranks that are threads. They share what they know.
std::vector<std::shared_ptr<Membership>> make_local_memberships(int world_size);

}  // namespace gradus::dist
