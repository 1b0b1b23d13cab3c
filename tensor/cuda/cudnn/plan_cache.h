// A thread-safe LRU cache of one device's compiled cuDNN plans by ConvKey, a convolution's parameters.
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

  // Returns the key's plan; calls `ConvPlan make()` and caches its result if there is none. One thread at a
  // time calls make(), which may take a second; meanwhile other threads get cached plans. An empty plan,
  // which means that cuDNN has none, is cached too. If make() throws, nothing is cached. A dropped plan in
  // use stays alive.
  template <class F> Plan get(const ConvKey& key, F&& make) {
    if (Plan plan = plans_.find(key)) return plan;
    const std::lock_guard lock(make_mutex_);
    if (Plan plan = plans_.find(key)) return plan;  // another thread has made it
    return plans_.insert(key, std::make_shared<const ConvPlan>(make()));
  }

  // Drops all plans. Waits for a make() in progress.
  void clear() {
    const std::lock_guard lock(make_mutex_);
    plans_.clear();
  }

 private:
  std::mutex make_mutex_;
  LruCache<ConvKey, Plan> plans_;
};

}  // namespace gradus::cuda
