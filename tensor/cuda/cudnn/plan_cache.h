// An LRU cache of convolution plans. A plan in use stays alive through its shared_ptr.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "gradus/tensor/cuda/cudnn/cudnn.h"

namespace gradus::cuda {

class PlanCache {
 public:
  using Plan = std::shared_ptr<const ConvPlan>;

  explicit PlanCache(size_t most) : most_(most) {}

  // Returns the plan of a key; a missing one is the result of make(). One thread at a time calls make(),
  // other threads get cached plans meanwhile.
  template <class F> Plan get(const ConvKey& key, F&& make) {
    if (Plan plan = find(key)) return plan;
    const std::lock_guard one(making_);
    if (Plan plan = find(key)) return plan;  // another thread has made it
    return keep(key, std::make_shared<const ConvPlan>(make()));
  }

  // Drops all plans. Waits for a make() in progress.
  void clear() {
    std::list<Entry> all;  // are destroyed without the lock
    const std::lock_guard one(making_);
    const std::lock_guard lock(mutex_);
    by_key_.clear();
    all.swap(entries_);
  }

 private:
  struct Entry {
    ConvKey key;
    Plan plan;
  };

  Plan find(const ConvKey& key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->plan;
  }
  Plan keep(const ConvKey& key, Plan plan) {
    Plan oldest;  // is destroyed without the lock
    const std::lock_guard lock(mutex_);
    entries_.push_front({key, plan});
    by_key_.emplace(key, entries_.begin());
    if (entries_.size() > most_) {
      oldest = std::move(entries_.back().plan);
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
    return plan;
  }

  const size_t most_;
  std::mutex making_, mutex_;
  std::list<Entry> entries_;  // the one that was used last is the first
  std::map<ConvKey, std::list<Entry>::iterator> by_key_;
};

}  // namespace gradus::cuda
