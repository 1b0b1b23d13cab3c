// Store: a key-value store shared by all ranks of a job (torch.distributed.Store): for rendezvous, barriers
// by group name (group_barrier) and values of the program (user_set, user_get).
//
//   TcpStore (gradus/distributed/store/tcp_store.h)    hosted by the launcher, or by rank 0
//   FileStore (gradus/distributed/store/file_store.h)  a file on a shared file system
//   MemoryStore (gradus/distributed/store/memory_store.h)  ranks as threads of one process
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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

// A call of a store. The views are of the caller's memory.
struct StoreRequest {
  enum class Op : uint8_t { kSet, kGet, kPop, kAdd, kCompareSet, kAppend, kWait, kCheck, kDelete, kNumKeys };
  Op op = Op::kNumKeys;
  std::vector<std::string_view> keys = {};    // kWait and kCheck: any number; kNumKeys: none; else one
  std::vector<std::string_view> values = {};  // kSet, kAppend: the value; kCompareSet: expected, desired
  int64_t amount = 0;                         // kAdd
  Milliseconds timeout{0};                    // kGet, kPop, kWait

  const char* name() const;  // "compare_set", for errors
  // Whether the request may block; whether it changes or removes a key.
  bool waits() const { return op == Op::kGet || op == Op::kPop || op == Op::kWait; }
  bool changes_key() const { return (op < Op::kWait && op != Op::kGet) || op == Op::kDelete; }
};
struct StoreAnswer {
  int64_t number = 0;      // kAdd: the sum; kAppend: the length; kCheck, kDelete: 0 or 1; kNumKeys: the count
  std::string value = {};  // kGet, kPop, kCompareSet
};

// Values are bytes. Each operation is atomic, except multi_get and multi_set. Thread-safe. Blocking
// operations take a timeout; nullopt means default_timeout().
// Errors: TimeoutError naming the key; StoreError beyond StoreLimits; ConnectionError if the server is lost.
class Store {
 public:
  using Op = StoreRequest::Op;
  virtual ~Store() = default;

  void set(std::string_view key, std::string_view value) { execute({Op::kSet, {key}, {value}}); }
  // Waits until the key exists, then returns its value.
  std::string get(std::string_view key, std::optional<Milliseconds> timeout = {});
  // Waits until the key exists, then removes it and returns its value. If several ranks pop one key, each
  // value goes to exactly one of them.
  std::string pop(std::string_view key, std::optional<Milliseconds> timeout = {});
  // Adds to a counter, which is decimal text, and returns the sum. An absent key counts as 0.
  // Errors: StoreError if the value is no number, or the sum overflows int64.
  int64_t add(std::string_view key, int64_t amount) { return execute({Op::kAdd, {key}, {}, amount}).number; }
  // Sets the value to `desired` if it is `expected` (absent: ""). Returns the value afterward.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    return execute({Op::kCompareSet, {key}, {expected, desired}}).value;
  }
  // Appends to the value and returns the new length. An absent key counts as "".
  int64_t append(std::string_view key, std::string_view value) {
    return execute({Op::kAppend, {key}, {value}}).number;
  }
  // Waits until all keys exist. The error names those that are missing.
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout = {});
  // Returns whether all keys exist, without waiting.
  bool check(const std::vector<std::string>& keys) {
    return execute({Op::kCheck, {keys.begin(), keys.end()}}).number != 0;
  }
  // Returns whether the key existed.
  bool delete_key(std::string_view key) { return execute({Op::kDelete, {key}}).number != 0; }
  int64_t num_keys() { return execute({Op::kNumKeys}).number; }
  // Waits for all keys, then returns their values.
  std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                     std::optional<Milliseconds> timeout = {});
  void multi_set(const std::vector<std::pair<std::string, std::string>>& entries);

  // Executes one request; the functions above call it. Blocks while request.waits() and a key is absent.
  virtual StoreAnswer execute(const StoreRequest& request) = 0;

  // The timeout of calls without one; initially 5 minutes.
  Milliseconds default_timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(Milliseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }

 private:
  std::atomic<Milliseconds> timeout_{Milliseconds(300'000)};
};

// Returns a store that puts "prefix/" before every key, as a namespace in the shared `store`; its num_keys()
// counts all keys of `store`. Its default timeout begins as that of `store`.
std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store);

}  // namespace gradus::dist
