// Store: a small key-value store that all ranks of a job see. Rendezvous, user_set, user_get and barriers
// are built on it.
//
//   TcpStore (gradus/distributed/store/tcp_store.h)    hosted by the launcher, or by rank 0
//   FileStore (gradus/distributed/store/file_store.h)  a file on a shared file system
//   MemoryStore (gradus/distributed/store/memory_store.h)  ranks as threads of one process
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"

namespace gradus::dist {

// The limits of every store. Beyond them a call throws a StoreError.
struct StoreLimits {
  static constexpr size_t kKeyBytes = 1 << 10;
  static constexpr size_t kValueBytes = 64 << 20;
  static constexpr size_t kTotalBytes = size_t(1) << 30;
  static constexpr size_t kKeys = 1 << 20;
};

// Values are bytes. Operations are atomic. Blocking operations take a timeout; the
// default is default_timeout().
// Errors: TimeoutError naming the key; StoreError beyond the limits; ConnectionError when the store is gone.
class Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value) = 0;
  // Waits until the key exists.
  virtual std::string get(std::string_view key, std::optional<Milliseconds> timeout = {}) = 0;
  // Waits until the key exists, then removes it and returns its value. If several ranks pop one key, each
  // value goes to exactly one of them.
  virtual std::string pop(std::string_view key, std::optional<Milliseconds> timeout = {}) = 0;
  // Adds to a counter, which is decimal text, and returns the sum. An absent key counts as 0.
  // Errors: StoreError if the key does not hold a number.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
  // Sets the key to `desired` if it holds `expected` (an absent key counts as ""). Returns
  // the value afterward.
  virtual std::string compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired) = 0;
  // Appends to the value and returns the new length. An absent key counts as "".
  virtual int64_t append(std::string_view key, std::string_view value) = 0;
  // Waits until all keys exist. The error names those that are missing.
  virtual void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout = {}) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;
  virtual bool delete_key(std::string_view key) = 0;
  virtual int64_t num_keys() = 0;
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                             std::optional<Milliseconds> timeout = {});
  virtual void multi_set(const std::vector<std::pair<std::string, std::string>>& entries);

  Milliseconds default_timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(Milliseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }

 private:
  std::atomic<Milliseconds> timeout_{Milliseconds(300'000)};
};

// Returns a store that puts "prefix/" before every key. This keeps several users of one store apart.
std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store);

}  // namespace gradus::dist
