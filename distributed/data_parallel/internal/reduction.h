// Reduction: launches the buckets of one backward and delivers their results, both in the order of buckets.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/distributed/data_parallel/internal/bucket_plan.h"
#include "gradus/distributed/data_parallel/internal/reducer_statistics.h"

namespace gradus::dist::internal {

class Reduction {
 public:
  using Deliveries = std::vector<GradCallback::Delivery>;

  // `number` is that of the backward. `exchange` yields the tensors that each rank reaches.
  Reduction(const ReducerConfig& config, std::shared_ptr<BucketPlan> plan,
            std::shared_ptr<BackwardExchange> exchange, int64_t number, Gradients& gradients,
            FiniteCheck& check);

  const BucketPlan& plan() const { return *plan_; }
  const std::shared_ptr<BackwardExchange>& exchange() const { return exchange_; }
  // Sets the result of the exchange, which marks the gradients that some rank uses.
  void set_consensus(const Consensus& consensus);
  // Returns the consensus of set_consensus(); null before set_consensus().
  const Consensus* consensus() const { return consensus_; }

  // Sets this rank's gradient of a tensor to accumulated + grad; either may be undefined.
  void set_gradient(size_t param, const Tensor& accumulated, const Tensor& grad);
  // Launches the buckets that are complete and next in order, without waiting. With a comm hook, the consensus
  // must be set; the all-reduce without a hook reads it later, when it runs.
  void launch_ready();
  void launch_all();
  bool all_delivered() const { return delivered_ == launched_; }
  // Appends the results of launched buckets that have completed, without waiting.
  void deliver_completed(Deliveries& to);
  // Waits for all launched buckets and appends their results to `to`; null: discards the results.
  void deliver_all(Deliveries* to);
  // Releases memory that communication may still use. No further bucket is launched or delivered.
  void abandon();

  // Returns the times and sizes of the buckets that some rank used.
  std::vector<BucketTraffic> traffic() const;

 private:
  struct BucketInFlight {
    int waiting = 0;  // number of gradients that this rank's backward has yet to compute
    Work work = {};
    std::function<void()> complete = {};  // completion of the comm hook
    std::shared_ptr<BucketTraffic> traffic = {};
  };

  bool is_used(const Bucket& bucket) const;
  void launch(bool finishing);
  std::function<void()> call_hook(size_t index);
  void deliver_next(Deliveries* to);

  const ReducerConfig& config_;
  const std::shared_ptr<BucketPlan> plan_;
  const std::shared_ptr<BackwardExchange> exchange_;
  const int64_t number_;
  Gradients& gradients_;
  FiniteCheck& check_;
  const Consensus* consensus_ = nullptr;
  std::vector<BucketInFlight> flights_;  // one per bucket
  size_t launched_ = 0, delivered_ = 0;  // numbers of launched and of delivered buckets
  size_t last_ = 0;                      // index of the last bucket that some rank uses
};

// Returns a + b. An undefined tensor counts as zeros; if both are undefined, the result is undefined.
Tensor sum_of(const Tensor& a, const Tensor& b);

}  // namespace gradus::dist::internal
