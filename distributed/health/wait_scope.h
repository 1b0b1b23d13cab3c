// WaitScope: registers a wait of the calling thread with the rank's Membership (RAII), for the rank's
// RankStatus, from which timeouts and deadlock detection find the ranks at fault.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradus/distributed/health/rank_status.h"

namespace gradus::dist {

class Membership;

// Describes a wait, or another fact about a thread (kPosted, kProgram). A posted call is an asynchronous call
// in a CallQueue (group/internal/call_queue.h). Made by the functions below; others' fields are unused.
struct Wait {
  enum class Kind : uint8_t {
    kCall,     // the thread is in a call, and waits until all members have arrived (all_arrived)
    kRanks,    // the thread waits for data of ranks, inside or outside of a call
    kQueue,    // the thread waits for a posted call
    kPosted,   // no wait: a posted call has not ended
    kProgram,  // no wait: the thread belongs to the rank's program
  };
  Kind kind = Kind::kRanks;
  CallId call = {};                                // kCall; kPosted: its series
  const char* op = "";                             // kCall
  std::string text = {};                           // kCall: its name in errors
  std::span<const int> members = {};               // kCall
  std::function<std::vector<int>()> missing = {};  // kRanks: returns the awaited ranks; called on any thread
  bool any = false;                                // kRanks: one of these ranks suffices
  const void* queue = nullptr;                     // kQueue: CallQueue::id()
  bool has_time_limit = false;                     // kQueue

  // `text` is the call's name in errors. `members`, ranks in the job, must outlive the wait.
  static Wait for_call(const char* op, std::string text, const CallId& call,
                       const std::vector<int>& members) {
    return {.kind = Kind::kCall, .call = call, .op = op, .text = std::move(text), .members = members};
  }
  // A receive is a call whose only member, the sender, arrives by sending. `call`: Membership::next_message.
  static Wait for_message(const char* op, std::string text, const CallId& call) {
    return {.kind = Kind::kCall, .call = call, .op = op, .text = std::move(text)};
  }
  // Inside of a kCall scope, counts only after all_arrived(); before, the thread waits for the members.
  static Wait for_ranks(std::function<std::vector<int>()> missing) { return {.missing = std::move(missing)}; }
  static Wait for_any_rank(std::function<std::vector<int>()> missing) {
    return {.missing = std::move(missing), .any = true};
  }
  static Wait for_queue(const void* queue, bool has_time_limit) {
    return {.kind = Kind::kQueue, .queue = queue, .has_time_limit = has_time_limit};
  }
  static Wait posted(const CallSeries& series) { return {.kind = Kind::kPosted, .call = {series, 0}}; }
  // For ranks that are threads; if the rank is a process, blocked_threads_id finds the process's threads.
  static Wait program_thread() { return {.kind = Kind::kProgram}; }
};

// Registers `wait` for its lifetime. Created and destroyed on the same thread; scopes of a thread nest.
class WaitScope {
 public:
  WaitScope(Membership& membership, Wait wait);  // membership must outlive the scope
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

  // For kCall: all members have arrived. From now on the thread waits for a member only in a kRanks scope.
  void all_arrived();
  const Wait& wait() const { return wait_; }
  // For kCall: returns the wait in the form of RankStatus::waits.
  RankWait rank_wait() const;
  // Returns the innermost kCall of this thread, or null.
  static const WaitScope* current_call() { return current_call_; }

 private:
  friend class Membership;
  Membership& membership_;
  Wait wait_;
  const void* const runs_on_;  // id of the CallQueue whose thread this is; null: a thread of the program
  const int thread_;           // gettid
  const WaitScope* const outer_call_;  // the enclosing kCall scope of this thread, or null
  bool all_arrived_ = false;
  static constinit thread_local const WaitScope* current_call_;
};

namespace internal {
// On the thread of a CallQueue: the queue's id. Null on other threads.
inline constinit thread_local const void* current_call_queue = nullptr;
}  // namespace internal

}  // namespace gradus::dist
