// The LRU cache of a device's convolution plans.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "gradus/tensor/base/lru_cache.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"

namespace gradus::cuda {

class PlanCache {
 public:
  using Plan = std::shared_ptr<const ConvPlan>;

  explicit PlanCache(size_t capacity) : plans_(capacity) {}

  // Returns the plan of a key; a missing one is the result of make(). One thread at a time calls make(),
  // other threads get cached plans meanwhile.
  template <class F> Plan get(const ConvKey& key, F&& make) {
    if (Plan plan = plans_.find(key)) return plan;
    const std::lock_guard one(making_);
    if (Plan plan = plans_.find(key)) return plan;  // another thread has made it
    return plans_.insert(key, std::make_shared<const ConvPlan>(make()));
  }

  // Drops all plans. Waits for a make() in progress.
  void clear() {
    const std::lock_guard one(making_);
    plans_.clear();
  }

 private:
  std::mutex making_;
  LruCache<ConvKey, Plan> plans_;
};

}  // namespace gradus::cuda
