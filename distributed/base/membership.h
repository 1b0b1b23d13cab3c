// Membership: which of the job's ranks are alive, and the failure that ended the job, once there is one.
//
// A failure ends the whole job, not a group. The first report counts, and every rank hears of it. All calls
// of all ranks that wait then, or come later, throw it. There are two implementations: LocalMembership for
// ranks as threads, and TcpMembership, a connection to the store's server on which a death shows at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/internal/rank_set.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist {

// A call that a rank is in, or another wait of it.
struct RankWait {
  // A group's call. The text is the same for all members in the call, and these do not wait for each other.
  // Empty: a wait outside of any group.
  std::string call = {};
  // The ranks that it waits for there. Empty: nothing is missing, or the wait does not hold the rank.
  RankSet ranks = {};
  bool any = false;   // one of `ranks` is enough
  bool holds = true;  // false: a posted call while the rank's program runs on
};
// Returns the group of a call: "3.0" for "3.0#12".
std::string_view group_of(std::string_view call);
// Returns the number of a call: 12 for "3.0#12"; 0 for a text that is no call.
uint64_t number_of(std::string_view call);

// What a rank is doing, as far as other ranks know. For the text of timeouts.
struct RankStatus {
  int rank = 0;
  bool left = false;
  Milliseconds silent{0};  // since its last sign of life
  // "in all_reduce #12 of group 'world'", "outside of any collective, after #11 ..."; "" unknown.
  std::string doing;
  std::vector<RankWait> waits = {};  // if none of them holds, its program runs on

  // Not 0: the rank is stuck. All its threads that could make a call wait in the calls of `waits` for
  // other members to come. While the number stays the same, none of these threads has moved. Note
  // [Deadlocks] in deadlock.h.
  uint64_t stuck = 0;
  std::map<std::string, uint64_t, std::less<>> came = {};  // per group: the last call it has come to
  std::vector<int> threads = {};  // this process's threads that wait so; not sent to others

  bool awaits(int rank) const;  // whether it is held by a wait for that rank
};

namespace internal {
// On a thread that runs posted calls: the queue of these calls. The rank's program runs on meanwhile.
inline constinit thread_local const void* posted_calls = nullptr;
// Returns the calling thread's number in the system (its thread id).
int thread_number();
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

  // Tells all ranks of the failure. Returns the failure that counts, which may be an earlier one. Returns
  // within about a second even if nobody answers.
  virtual Failure report(const Failure& failure) = 0;
  // Ends this rank in order. Its later reports are ignored.
  virtual void leave() = 0;
  // Sets what this rank does now. Cheap: the text is kept here, and sent to others now and then. A posted
  // call does not replace the text of a call that the program is in.
  void set_doing(std::string doing);
  std::string doing() const;
  // While one lives, this thread is in call `number` of a group.
  class InCall {
   public:
    // `text` names the call. `members` must outlive this object.
    InCall(Membership& membership, std::string text, uint32_t group, uint64_t number,
           const std::vector<int>& members);
    ~InCall();
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;

    // Notes that all members have come. From now on the thread waits for a member only where an
    // Awaiting says so.
    void all_here();
    // Returns the innermost InCall of this thread, or null.
    static const InCall* current() { return current_; }
    const std::string& text() const { return text_; }
    RankWait wait() const;

   private:
    friend class Membership;
    Membership& membership_;
    const std::string text_;
    const uint32_t group_;
    const uint64_t number_;
    const std::vector<int>& members_;
    const void* const posted_;
    const int thread_ = internal::thread_number();
    bool all_here_ = false;
    InCall* const outer_;
    static constinit thread_local InCall* current_;
  };
  // Count a message that is about to be sent to `rank`, and a message that has been received from it. A
  // receive that is counted late can only hide a deadlock.
  void count_sent(int rank);
  void count_received(int rank);
  // While one lives, this thread waits for the next message from `source`. The wait counts as a call, to
  // which the source comes by sending.
  class Receiving {
   public:
    Receiving(Membership& membership, std::string text, int source);

   private:
    const std::vector<int> source_;
    const InCall call_;
  };
  // While one lives, a thread of this rank waits for all or any of the ranks that `missing` returns.
  // `missing` may be called on any thread. While members of the thread's call have not come, the thread
  // counts as waiting for those members instead.
  class Awaiting {
   public:
    enum Enough { kAll, kAny };
    Awaiting(Membership& membership, std::function<std::vector<int>()> missing, Enough enough = kAll);
    ~Awaiting();
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;

   private:
    friend class Membership;
    Membership& membership_;
    const std::function<std::vector<int>()> missing_;
    const Enough enough_;
    const void* const posted_;
    const InCall* const call_;
  };
  // While one lives, the program waits for a call that it has posted to a queue.
  class AwaitingCall {
   public:
    // `limited`: the wait has a time limit, so the program goes on even if the call does not end.
    AwaitingCall(Membership& membership, const void* queue, bool limited);
    ~AwaitingCall();
    AwaitingCall(const AwaitingCall&) = delete;
    AwaitingCall& operator=(const AwaitingCall&) = delete;

   private:
    friend class Membership;
    Membership& membership_;
    const void* const queue_;
    const bool limited_;
    const int thread_ = internal::thread_number();
  };
  // While one lives, a call of a group is posted and has not ended.
  class Posted {
   public:
    Posted(Membership& membership, uint32_t group, const std::vector<int>& members);
    ~Posted();
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;

   private:
    Membership& membership_;
    const std::pair<uint32_t, int> group_;
  };
  // While one lives, its thread belongs to the rank's program, whatever the thread does. A rank that is a
  // process needs none: all of its threads are looked at.
  class ProgramThread {
   public:
    explicit ProgramThread(Membership& membership);
    ~ProgramThread();
    ProgramThread(const ProgramThread&) = delete;
    ProgramThread& operator=(const ProgramThread&) = delete;

   private:
    Membership& membership_;
    const int thread_ = internal::thread_number();
  };
  // Returns what others may know of this rank. For `stuck`, a thread counts only if it is in a call or
  // is a ProgramThread.
  RankStatus status() const;
  // Ends the job if ranks wait for each other forever. Waits call it now and then.
  virtual void look_for_deadlock() {}
  // Returns whether look_for_deadlock looks at all. If not, the store's server looks.
  virtual bool looks_for_deadlocks() const { return false; }
  // Returns the other ranks' last known state, within about a second; empty if the store cannot be asked.
  virtual std::vector<RankStatus> statuses() = 0;

 protected:
  // Implementations call these as the news comes in.
  void set_failed(const Failure& failure);  // the first one stays
  void set_left(int rank) { left_[rank].store(1, std::memory_order_release); }
  void add_program_threads(std::vector<int>& to) const;

 private:
  bool all_wait(std::vector<int>& threads) const;
  uint64_t next_message(int source) const;

  const int rank_, world_size_, process_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Failure failure_;
  std::string doing_;
  std::vector<const InCall*> calls_;
  std::vector<const Awaiting*> awaiting_;
  std::vector<const AwaitingCall*> awaited_calls_;
  using GroupKey = std::pair<uint32_t, int>;  // groups without a common member may have the same number
  std::map<GroupKey, uint64_t> came_;         // the last call's number; for messages: how many were sent
  std::map<int, uint64_t> received_;          // messages, by source
  std::map<GroupKey, int> posted_;            // calls
  std::vector<int> program_threads_;
  uint64_t moves_ = 1;  // counts changes of all that `stuck` is computed from
  std::vector<std::atomic<char>> left_;
};

// Makes the memberships of world_size ranks that are threads. They share what they know.
std::vector<std::shared_ptr<Membership>> make_local_memberships(int world_size);

}  // namespace gradus::dist
