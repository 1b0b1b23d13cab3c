// A thread-safe LRU cache: a map of at most `capacity` entries, from which an insertion beyond the capacity drops the
// entry that was not used for the longest time. Values are pointers that share ownership, so a value in use stays alive.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <utility>

namespace gradus {

// Map: std::map, or std::unordered_map for keys with a std::hash.
template <class Key, class Pointer, template <class...> class Map = std::map> class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  // Returns the value of a key, or null.
  Pointer find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }

  // Stores a value and returns it, or the value that the key has already.
  Pointer insert(const Key& key, Pointer value) {
    Pointer dropped;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->second;
    entries_.emplace_front(key, value);
    by_key_.emplace(key, entries_.begin());
    if (entries_.size() > capacity_) {
      dropped = std::move(entries_.back().second);
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return value;
  }

  void clear() {
    Entries dropped;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    by_key_.clear();
    dropped.swap(entries_);
  }

 private:
  using Entries = std::list<std::pair<Key, Pointer>>;

  const size_t capacity_;
  std::mutex mutex_;
  Entries entries_;  // the most recently used first
  Map<Key, typename Entries::iterator> by_key_;
};

}  // namespace gradus
