// Reduction: the buckets of one backward under way. They are launched and land in their order.
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

  // `number` is the backward's. The exchange says what ranks reach.
  Reduction(const ReducerConfig& config, std::shared_ptr<BucketPlan> plan,
            std::shared_ptr<BackwardExchange> exchange, int64_t number, Gradients& gradients,
            FiniteCheck& check);

  const BucketPlan& plan() const { return *plan_; }
  const std::shared_ptr<BackwardExchange>& exchange() const { return exchange_; }
  // Tells what all ranks reach, once the exchange is over.
  void use(const Consensus& consensus);
  // Returns what it was told; null before.
  const Consensus* consensus() const { return consensus_; }

  // Takes this rank's gradient of a tensor, the sum of both; either may be undefined.
  void put(size_t param, const Tensor& kept, const Tensor& grad);
  // Launches what may go, without waiting. An all-reduce need not know what the others reach: it finds out
  // when its turn has come, after the exchange. A hook does, since it is called here.
  void launch_ready();
  void launch_all();
  bool has_landed() const { return landed_ == launched_; }
  // Delivers buckets that were launched: those that have come, or after waiting for them, all.
  void land_completed(Deliveries& to);
  // Without `to`, what has come is dropped.
  void land_all(Deliveries* to);
  // Lets go of memory that may still be under way. Nothing more is launched, and nothing lands.
  void abandon();

  // Returns what was sent, of the buckets that some rank used.
  std::vector<BucketTraffic> traffic() const;

 private:
  struct Flight {
    int waiting = 0;  // gradients that are still to come on this rank
    Work work = {};
    std::function<void()> complete = {};  // of a hook
    std::shared_ptr<BucketTraffic> traffic = {};
  };

  bool is_used(const Bucket& bucket) const;
  void launch(bool finishing);
  std::function<void()> call_hook(size_t index);
  void land(Deliveries* to);

  const ReducerConfig& config_;
  const std::shared_ptr<BucketPlan> plan_;
  const std::shared_ptr<BackwardExchange> exchange_;
  const int64_t number_;
  Gradients& gradients_;
  FiniteCheck& check_;
  const Consensus* consensus_ = nullptr;
  std::vector<Flight> flights_;  // of each bucket
  size_t launched_ = 0, landed_ = 0;
  size_t last_ = 0;  // bucket that some rank uses
};

// a + b; either may be undefined.
Tensor sum_of(const Tensor& a, const Tensor& b);

}  // namespace gradus::dist::internal
