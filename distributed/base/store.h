// Store: a small key-value store that all ranks of a job see. Rendezvous, user_set/user_get and barriers
// are built on it.
//
//   TcpStore (gradus/distributed/store/tcp_store.h)    hosted by the launcher, or by rank 0
//   FileStore (gradus/distributed/store/file_store.h)  a file on a shared file system
//   MemoryStore                                  ranks as threads of one process
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

// Limits of every store; beyond them a StoreError.
struct StoreLimits {
  static constexpr size_t kKeyBytes = 1 << 10;
  static constexpr size_t kValueBytes = 64 << 20;
  static constexpr size_t kTotalBytes = size_t(1) << 30;
  static constexpr size_t kKeys = 1 << 20;
};

// Values are bytes. Operations are atomic. Blocking ones take a timeout; default_timeout()
// when none is given.
// Errors: TimeoutError naming the key; StoreError beyond the limits; ConnectionError when the store is gone.
class Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value) = 0;
  // Waits until the key exists.
  virtual std::string get(std::string_view key, std::optional<Milliseconds> timeout = {}) = 0;
  // Waits until the key exists, then takes it away; of several takers exactly one gets each value.
  virtual std::string pop(std::string_view key, std::optional<Milliseconds> timeout = {}) = 0;
  // Adds to a counter (decimal text; absent counts as 0); returns the sum.
  // Errors: StoreError unless it holds a number.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
  // Sets the key to `desired` if it holds `expected` (an absent key counts as ""). Returns what
  // it holds afterward.
  virtual std::string compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired) = 0;
  // Appends to the value (absent counts as ""); returns the new length.
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

// Puts "prefix/" before every key: several users of one store stay apart.
std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store);

// In this process; for ranks that are threads. Waits obey a simulation.
std::shared_ptr<Store> make_memory_store();

}  // namespace gradus::dist
