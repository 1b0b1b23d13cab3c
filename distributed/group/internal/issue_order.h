// IssueOrder: one order, the same on all ranks, in which the calls of all groups are queued on GPUs.
//
// A kernel of a collective occupies its GPU until all members' kernels run. If two ranks queued calls of two groups in
// opposite orders, each GPU might wait for the other forever. The program's order does not suffice: a bucket of gradients
// may become complete before another call on one rank, and after it on another.
//
// Algorithm: each rank counts. When all members are in a call, each proposes the next number of its count, and the
// greatest proposal is the call's number. Calls are queued in the order of their numbers; equal numbers in that of the
// groups. A call with an agreed number waits for every open call with a smaller number, and for every one whose proposal
// is not greater: its number may still become smaller. No proposal stays open for long, since all members are there.
// Source: Skeen's total order, in Birman and Joseph, "Reliable communication in the presence of failures", 1987.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/health/futex.h"
#include "gradus/distributed/health/rank_status.h"

namespace gradus::dist::internal {

// Of one rank. Thread-safe.
class IssueOrder {
 public:
  // A call, from its proposal until it is queued.
  class Turn {
   public:
    explicit Turn(IssueOrder& order);  // proposes
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    uint64_t proposed() const { return key_.first; }
    // Sets the number that the members have agreed on. `call` decides between equal numbers.
    void agree(uint64_t agreed, const CallSeries& call);
    // Returns whether the call, whose number is agreed, is the next one.
    bool is_next() const;
    // Blocks until is_next(). Errors: the job's failure, or a timeout.
    void wait(const char* op, const WaitLimits& limits);

   private:
    IssueOrder& order_;
    std::pair<uint64_t, CallSeries> key_;
  };

  // Notified when another call may be the next one.
  Futex& changed() { return changed_; }

 private:
  std::mutex mutex_;
  uint64_t count_ = 0;
  // Calls that are not queued yet, by number and group. A proposal comes before agreed calls of its number.
  std::map<std::pair<uint64_t, CallSeries>, const Turn*> open_;
  Futex changed_;
};

}  // namespace gradus::dist::internal
