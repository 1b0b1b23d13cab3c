// WaitScope: registers a wait of this rank with its Membership, so that other ranks learn what the rank waits for
// and deadlocks are found.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradus/distributed/health/rank_status.h"

namespace gradus::dist {

class Membership;

struct Wait {
  enum class Kind : uint8_t {
    kCall,     // in a call, until its members have arrived
    kRanks,    // for data of ranks, inside or outside of a call
    kQueue,    // for a call that the program has posted to a queue
    kPosted,   // no wait: a posted call has not ended
    kProgram,  // no wait: the thread belongs to the rank's program
  };
  Kind kind = Kind::kRanks;
  CallId call = {};                                // kCall; kPosted: its series
  const char* op = "";                             // kCall
  std::string text = {};                           // kCall: its name in errors
  std::span<const int> members = {};               // kCall
  std::function<std::vector<int>()> missing = {};  // kRanks: the ranks; called on any thread
  bool any = false;                                // kRanks: one of them is enough
  const void* queue = nullptr;                     // kQueue
  bool limited = false;                            // kQueue: the program continues after a time limit

  // `members` must outlive the wait.
  static Wait for_call(const char* op, std::string text, const CallId& call,
                       const std::vector<int>& members) {
    return {.kind = Kind::kCall, .call = call, .op = op, .text = std::move(text), .members = members};
  }
  // A receive is a call of the sender alone. The sender arrives by sending. `call`: Membership::next_message.
  static Wait for_message(const char* op, std::string text, const CallId& call) {
    return {.kind = Kind::kCall, .call = call, .op = op, .text = std::move(text)};
  }
  // While members of the thread's call have not arrived, the thread counts as waiting for those instead.
  static Wait for_ranks(std::function<std::vector<int>()> missing) { return {.missing = std::move(missing)}; }
  static Wait for_any_rank(std::function<std::vector<int>()> missing) {
    return {.missing = std::move(missing), .any = true};
  }
  static Wait for_queue(const void* queue, bool limited) {
    return {.kind = Kind::kQueue, .queue = queue, .limited = limited};
  }
  static Wait posted(const CallSeries& series) { return {.kind = Kind::kPosted, .call = {series, 0}}; }
  // Needed where ranks are threads. If the rank is a process, all its threads are examined.
  static Wait program_thread() { return {.kind = Kind::kProgram}; }
};

class WaitScope {
 public:
  WaitScope(Membership& membership, Wait wait);
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

  // All members have arrived at the call. From now on the thread waits for a member only in a kRanks scope.
  void all_arrived();
  const Wait& wait() const { return wait_; }
  // Returns the wait of a kCall as other ranks see it.
  RankWait rank_wait() const;
  // Returns the innermost kCall of this thread, or null.
  static const WaitScope* current_call() { return current_call_; }

 private:
  friend class Membership;
  Membership& membership_;
  Wait wait_;
  const void* const runs_on_;  // the queue on whose thread the scope is; null: a thread of the program
  const int thread_;
  const WaitScope* const outer_call_;
  bool all_arrived_ = false;
  static constinit thread_local const WaitScope* current_call_;
};

namespace internal {
// On a thread that runs posted calls: the queue of these calls. The rank's program continues meanwhile.
inline constinit thread_local const void* posted_calls = nullptr;
}  // namespace internal

}  // namespace gradus::dist
