// A thread-safe LRU cache: a map of at most `capacity` entries. An insertion beyond the capacity evicts the least
// recently used entry. Values are pointers that share ownership, so an evicted value in use stays alive.
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

  // Returns the value of a key, which becomes the most recently used entry, or null.
  Pointer find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->second;
  }

  // Stores a value (not null) and returns it, or returns the value that the key has already.
  Pointer insert(const Key& key, Pointer value) {
    Pointer evicted;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    if (const auto it = by_key_.find(key); it != by_key_.end()) return it->second->second;
    entries_.emplace_front(key, value);
    by_key_.emplace(key, entries_.begin());
    if (entries_.size() > capacity_) {
      evicted = std::move(entries_.back().second);
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return value;
  }

  void clear() {
    Entries removed;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    by_key_.clear();
    removed.swap(entries_);
  }

 private:
  using Entries = std::list<std::pair<Key, Pointer>>;

  const size_t capacity_;
  std::mutex mutex_;
  Entries entries_;  // the most recently used first
  Map<Key, typename Entries::iterator> by_key_;
};

}  // namespace gradus
