// KeyTable: the keys and values of a key-value store in memory, limited by StoreLimits. Not thread-safe, and
// never blocks: its owner queues a request until missing() is empty, then calls execute().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/store.h"

namespace gradus::dist::internal {

// Requests have the numbers of keys and values that StoreRequest documents (not checked).
// Errors: StoreError if a change would exceed the limits, and for a kAdd on a value that is no decimal int64
// or whose sum overflows; the table is then unchanged.
class KeyTable {
 public:
  // Executes a request. Requires missing(request) to be empty.
  StoreAnswer execute(const StoreRequest& request);
  // Returns the absent keys that a kGet, kPop or kWait waits for; none for other requests.
  std::vector<std::string> missing(const StoreRequest& request) const;
  // Returns the value, valid until the key is changed or erased; null if the key is absent.
  const std::string* find(std::string_view key) const;
  void set(std::string_view key, std::string_view value) { slot("set", key, value.size()).assign(value); }
  bool erase(std::string_view key);  // returns whether the key existed
  // Erases all keys except those that begin with `prefix`.
  void erase_all_except(std::string_view prefix);

 private:
  int64_t add(std::string_view key, int64_t amount);  // on decimal text; returns the sum
  // Returns the key's value, adding the key if absent, and counts value_bytes bytes for the new value, which
  // the caller then assigns. `op` is for errors.
  std::string& slot(const char* op, std::string_view key, size_t value_bytes);

  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;  // of keys and values
};

// Returns "nobody set 'a', 'b'".
std::string missing_text(const std::vector<std::string>& keys);
// Throws the TimeoutError of a wait: "[get] nobody set 'a' within 500 ms".
[[noreturn]] void throw_missing(const char* op, const std::vector<std::string>& keys, Milliseconds timeout);
// Errors: StoreError for a key or value with more bytes than StoreLimits allows.
void check_key(const char* op, std::string_view key);
void check_value(const char* op, std::string_view key, size_t value_bytes);

}  // namespace gradus::dist::internal
