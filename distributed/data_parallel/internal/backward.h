// AllReduceCallback::Backward: a backward of an all-reduce callback. Launches the buckets and delivers their
// results, both in the order of buckets.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/internal/bucket.h"
#include "gradus/distributed/data_parallel/internal/bucket_plan.h"

namespace gradus::dist {

class AllReduceCallback::Backward {
 public:
  using Deliveries = std::vector<Delivery>;

  explicit Backward(AllReduceCallback& callback);
  ~Backward();

  // Starts the reduction of the gradients that `reached` and the consensus name.
  void start(std::shared_ptr<internal::BucketPlan> plan,
             std::shared_ptr<const internal::Consensus> consensus);
  bool is_reducing() const { return consensus_ != nullptr; }
  // Whether the consensus is known, and the step is canceled on all ranks.
  bool is_canceled() const { return has_consensus_ && consensus_->canceled; }

  // Waits for the consensus and throws the errors that follow from it. try_consensus() does so only if the
  // exchange has completed. Returns whether it has and the step is not canceled.
  void wait_for_consensus();
  bool try_consensus();

  // Sets this rank's gradient of a tensor to accumulated + grad; either may be undefined.
  void set_gradient(size_t param, const Tensor& accumulated, const Tensor& grad);
  // Launches the buckets that are complete and next in order, without waiting. With a comm hook,
  // wait_for_consensus() must have run; the all-reduce without a hook reads the consensus later, when it runs.
  void launch_ready();
  bool all_delivered() const { return delivered_ == launched_; }
  // Appends the results of launched buckets that have completed, without waiting.
  void deliver_completed(Deliveries& to);

  // Reduces and delivers all remaining gradients after wait_for_consensus(). Null `to`: discards the results.
  void finish(Deliveries* to);
  // Checks the results, and updates the buffers of broadcast_after.
  void conclude();
  // Updates the callback's statistics. `computed` is the end of the computation.
  void count(TimePoint computed) const;
  // Releases memory that communication may still use. No further bucket is launched or delivered.
  void abandon();

  const TimePoint begun = internal::clock_now();
  const bool accumulating;  // within no_sync
  internal::FiniteCheck finite;
  std::vector<bool> reached;        // per attached tensor: this rank has a gradient for it
  bool in_outer_recording = false;  // an enclosing recording may record this backward
  bool agreed_error = false;        // all ranks throw the same error, so no failure report is sent
  int pending_cancellations = 0;    // recordings that ended without a backward during this backward

 private:
  template <class F> void check_on_all_ranks(F check);
  void launch(bool finishing);
  std::function<void()> call_hook(size_t index);
  void deliver_next(Deliveries* to);
  bool any_rank_tracks() const;
  void deliver_tracked(Deliveries& to);

  AllReduceCallback& callback_;
  std::shared_ptr<internal::BucketPlan> plan_;
  std::shared_ptr<const internal::Consensus> consensus_;  // null within no_sync and in a group of one rank
  bool has_consensus_ = false;
  std::vector<std::shared_ptr<internal::Bucket>> buckets_;
  std::vector<std::pair<internal::Bucket*, internal::Gradient*>> gradients_;  // by attached tensor
  size_t launched_ = 0, delivered_ = 0;                 // numbers of launched and of delivered buckets
  size_t last_ = 0;                                     // index of the last bucket that some rank uses
  std::optional<internal::PackedBroadcast> broadcast_;  // of broadcast_after
  int64_t tracked_bytes_ = 0;  // size of gradients reduced one by one, outside of buckets
};

}  // namespace gradus::dist
