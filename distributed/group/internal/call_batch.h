// CallBatch: the calls of dist::coalesced on one thread.
#pragma once

#include <vector>

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist::internal {

// The thread's batch from construction to destruction or finish(). Works of a batch that is destroyed before
// continue, and an all_reduce that has not begun is dropped.
class CallBatch {
 public:
  CallBatch();
  ~CallBatch();
  CallBatch(const CallBatch&) = delete;
  CallBatch& operator=(const CallBatch&) = delete;

  // Returns the calling thread's batch, or null.
  static CallBatch* current();

  // Adds a call that has begun.
  void add(Work work) { works_.push_back(std::move(work)); }
  // Adds an all_reduce that begins with the next ones, where these can be one message. Returns false for a call
  // that must begin by itself.
  bool add_all_reduce(const Tensor& x, const AllReduceOptions& options);
  // Begins the calls of all_reduce that were added.
  void flush();
  // Begins them, ends the batch and waits for all calls.
  void finish();

 private:
  std::vector<Work> works_;
  std::vector<Tensor> all_reduce_;  // not begun yet
  AllReduceOptions options_;        // of these
};

}  // namespace gradus::dist::internal
