// KeyTable: keys and values within a store's limits, and what the store's operations do to them. No
// waiting, no threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/store.h"

namespace gradus::dist::internal {

// Errors of all that change a key: StoreError beyond the limits, and nothing has changed.
class KeyTable {
 public:
  // The value, or null.
  const std::string* find(std::string_view key) const;
  void set(std::string_view key, std::string_view value);
  int64_t add(std::string_view key, int64_t amount);
  const std::string& compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  int64_t append(std::string_view key, std::string_view value);
  bool erase(std::string_view key);
  // Forgets all keys but those that begin with `prefix`.
  void keep_only(std::string_view prefix);
  size_t size() const { return values_.size(); }
  size_t bytes() const { return bytes_; }
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;

 private:
  std::string& slot(const char* op, std::string_view key, size_t value_bytes);

  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;  // of keys and values
};

// "nobody set 'a', 'b'".
std::string missing_text(const std::vector<std::string>& keys);
// Throws the error of a wait that was too long: "[get] nobody set 'a' within 500 ms".
[[noreturn]] void throw_missing(const char* op, const std::vector<std::string>& keys, Milliseconds timeout);
// Errors: StoreError for a key or value that no store takes.
void check_key(const char* op, std::string_view key);
void check_value(const char* op, std::string_view key, size_t value_bytes);

}  // namespace gradus::dist::internal
