// KeyTable: a store's keys and values, within its limits, and the operations on them. It knows no waits
// and no threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/store.h"

namespace gradus::dist::internal {

// Errors: StoreError from each function that changes a key, if the change would exceed the limits. Then
// nothing has changed.
class KeyTable {
 public:
  // Executes a request whose missing() keys are none.
  StoreAnswer execute(const StoreRequest& request);
  // Returns the keys that a request waits for and that are absent.
  std::vector<std::string> missing(const StoreRequest& request) const;
  // Returns the value, or null if the key is absent.
  const std::string* find(std::string_view key) const;
  void set(std::string_view key, std::string_view value) { slot("set", key, value.size()).assign(value); }
  bool erase(std::string_view key);
  // Removes all keys except those that begin with `prefix`.
  void erase_all_except(std::string_view prefix);

 private:
  int64_t add(std::string_view key, int64_t amount);
  std::string& slot(const char* op, std::string_view key, size_t value_bytes);

  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;  // of keys and values
};

// Returns "nobody set 'a', 'b'".
std::string missing_text(const std::vector<std::string>& keys);
// Throws the TimeoutError of a wait: "[get] nobody set 'a' within 500 ms".
[[noreturn]] void throw_missing(const char* op, const std::vector<std::string>& keys, Milliseconds timeout);
// Errors: StoreError for a key or value beyond the limits of every store.
void check_key(const char* op, std::string_view key);
void check_value(const char* op, std::string_view key, size_t value_bytes);

}  // namespace gradus::dist::internal
