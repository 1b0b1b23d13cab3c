// Membership: who of the job's ranks is alive, and the failure that ended the job, once there is one.
//
// A failure is the job's, not a group's: the first report counts, every rank hears of it, and all its calls
// that are waiting, or come later, throw it. LocalMembership (ranks as threads) and TcpMembership (a
// connection to the store's server, on which a death shows at once) implement it.
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

// Something that a rank has come to.
struct RankWait {
  // A group's call, the same text for all who are in it: they do not wait for each other. Empty: of no group.
  std::string call = {};
  // For whom it waits there. None: it has what it needs of them, or is not held.
  RankSet ranks = {};
  bool any = false;   // one of them is enough
  bool holds = true;  // false: a posted call, and the rank's program runs on
};
// "3.0" of "3.0#12": the group of a call.
std::string_view group_of(std::string_view call);
// 12 of it; 0 of what is no call.
uint64_t number_of(std::string_view call);

// What a rank is doing, as far as others know: for the text of timeouts.
struct RankStatus {
  int rank = 0;
  bool left = false;
  Milliseconds silent{0};  // since its last sign of life
  // "in all_reduce #12 of group 'world'", "outside of any collective, after #11 ..."; "" unknown.
  std::string doing;
  std::vector<RankWait> waits = {};  // none that holds: its program runs on

  // Not 0: all threads that could bring a call of this rank's wait in the calls of `waits` for other members
  // to come, and none has moved since this number was last the same. Note [Deadlocks] in deadlock.h.
  uint64_t stuck = 0;
  std::map<std::string, uint64_t, std::less<>> came = {};  // the last call of each group that it has come to
  std::vector<int> threads = {};  // of this process: those that wait so; others do not hear of them

  bool awaits(int rank) const;  // whether it is held by a wait for that rank
};

namespace internal {
// Of a thread that runs calls which its rank's program has posted, and goes on meanwhile: their queue.
inline constinit thread_local const void* posted_calls = nullptr;
// The calling thread's number, as the system counts.
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

  // Whether the job has failed; one atomic load.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Failure failure() const;  // only once failed()
  // Whether this process is the rank, or the child that a rank has forked: that is no rank, must not say
  // anything for it, and has none of its threads.
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
  // What this rank does now; cheap: kept here, sent to others now and then. A posted call does not hide what
  // the program is in.
  void set_doing(std::string doing);
  std::string doing() const;
  // While one lives, this thread is in call `number` of a group.
  class InCall {
   public:
    // `text` names the call, `members` stay as long.
    InCall(Membership& membership, std::string text, uint32_t group, uint64_t number,
           const std::vector<int>& members);
    ~InCall();
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;

    // All members have come: it waits for none of them any more but where Awaiting says so.
    void all_here();
    // The innermost one of this thread, or null.
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
  // A message to that rank is about to be sent; one from that rank has been received. Who counts the latter
  // late sees fewer deadlocks.
  void count_sent(int rank);
  void count_received(int rank);
  // While one lives, this thread waits for the next message from `source`: a call that the source
  // comes to by sending.
  class Receiving {
   public:
    Receiving(Membership& membership, std::string text, int source);

   private:
    const std::vector<int> source_;
    const InCall call_;
  };
  // While one lives, a thread of this rank waits for all or any of the ranks that `missing` returns, on any
  // thread. In a call that some have not come to it is for these that it waits.
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
    // `limited`: it goes on after a while, whether the call has ended or not.
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
  // While one lives, its thread is one of the rank's program, whatever it does. A process need not say so:
  // all of its threads are looked at.
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
  // What others may know of this rank. `stuck` counts no threads that make no calls yet,
  // except of ProgramThread.
  RankStatus status() const;
  // To be called by waits, now and then: ends the job where ranks wait for each other for ever.
  virtual void look_for_deadlock() {}
  // Whether it looks at all, and nobody else does.
  virtual bool looks_for_deadlocks() const { return false; }
  // The other ranks' last known state. Returns within about a second; empty when the store cannot be asked.
  virtual std::vector<RankStatus> statuses() = 0;

 protected:
  // Implementations call these as they learn.
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
  std::map<GroupKey, uint64_t> came_;         // the last call; of messages: how many are sent
  std::map<int, uint64_t> received_;          // messages, by source
  std::map<GroupKey, int> posted_;            // calls
  std::vector<int> program_threads_;
  uint64_t moves_ = 1;  // of all that `stuck` is made of
  std::vector<std::atomic<char>> left_;
};

// For ranks that are threads: world_size members that share what they know.
std::vector<std::shared_ptr<Membership>> make_local_memberships(int world_size);

}  // namespace gradus::dist
