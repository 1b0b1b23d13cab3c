#include "gradus/distributed/base/key_table.h"

#include <charconv>

namespace gradus::dist::internal {
namespace {

// Returns a key as messages show it: short, and without bytes that a terminal would take for commands.
std::string shown(std::string_view key) {
  constexpr size_t kShown = 100;
  std::string text = "'";
  for (const char c : key.substr(0, kShown))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + (key.size() > kShown ? "...'" : "'");
}

}  // namespace

void check_key(const char* op, std::string_view key) {
  if (key.size() > StoreLimits::kKeyBytes)
    throw StoreError(op, -1, "key ", shown(key), " has ", key.size(), " bytes; at most ",
                     StoreLimits::kKeyBytes, " are allowed");
}

void check_value(const char* op, std::string_view key, size_t value_bytes) {
  if (value_bytes > StoreLimits::kValueBytes)
    throw StoreError(op, -1, "key ", shown(key), ": its value would have ", value_bytes, " bytes; at most ",
                     StoreLimits::kValueBytes, " are allowed");
}

const std::string* KeyTable::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

// Returns the key's value, which is about to get this size. An absent key is added.
std::string& KeyTable::slot(const char* op, std::string_view key, size_t value_bytes) {
  check_key(op, key);
  check_value(op, key, value_bytes);
  auto it = values_.find(key);
  const bool absent = it == values_.end();
  const size_t before = absent ? 0 : it->second.size();
  const size_t after = bytes_ - before + value_bytes + (absent ? key.size() : 0);
  if (absent && values_.size() >= StoreLimits::kKeys)
    throw StoreError(op, -1, "no room for key ", shown(key), ": there are ", values_.size(), " keys already");
  if (after > StoreLimits::kTotalBytes)
    throw StoreError(op, -1, "no room for ", value_bytes, " bytes of ", shown(key), ": the store holds ",
                     bytes_, " of ", StoreLimits::kTotalBytes);
  if (absent) it = values_.emplace(std::string(key), std::string()).first;
  bytes_ = after;
  return it->second;
}

void KeyTable::set(std::string_view key, std::string_view value) {
  slot("set", key, value.size()).assign(value);
}

int64_t KeyTable::add(std::string_view key, int64_t amount) {
  int64_t sum = 0;
  const std::string* old = find(key);
  if (old != nullptr && !old->empty()) {
    const auto [end, error] = std::from_chars(old->data(), old->data() + old->size(), sum);
    if (error != std::errc() || end != old->data() + old->size())
      throw StoreError("add", -1, "cannot add ", amount, " to ", shown(key), ", which holds ", shown(*old));
  }
  if (__builtin_add_overflow(sum, amount, &sum))
    throw StoreError("add", -1, "cannot add ", amount, " to ", shown(key), ", which holds ", *old,
                     ": too large");
  const std::string text = std::to_string(sum);
  slot("add", key, text.size()).assign(text);
  return sum;
}

const std::string& KeyTable::compare_set(std::string_view key, std::string_view expected,
                                         std::string_view desired) {
  static const std::string kEmpty;
  const std::string* old = find(key);
  if (old == nullptr ? !expected.empty() : *old != expected) return old == nullptr ? kEmpty : *old;
  std::string& value = slot("compare_set", key, desired.size());
  return value.assign(desired);
}

int64_t KeyTable::append(std::string_view key, std::string_view value) {
  const std::string* old = find(key);
  std::string& all = slot("append", key, (old == nullptr ? 0 : old->size()) + value.size());
  return static_cast<int64_t>(all.append(value).size());
}

bool KeyTable::erase(std::string_view key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return false;
  bytes_ -= it->first.size() + it->second.size();
  values_.erase(it);
  return true;
}

void KeyTable::keep_only(std::string_view prefix) {
  for (auto it = values_.begin(); it != values_.end();) {
    if (it->first.starts_with(prefix)) {
      ++it;
      continue;
    }
    bytes_ -= it->first.size() + it->second.size();
    it = values_.erase(it);
  }
}

std::vector<std::string> KeyTable::missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> absent;
  for (const auto& key : keys)
    if (find(key) == nullptr) absent.push_back(key);
  return absent;
}

std::string missing_text(const std::vector<std::string>& keys) {
  constexpr size_t kNamed = 10;
  std::string text = "nobody set ";
  for (size_t i = 0; i < keys.size() && i < kNamed; ++i) text += (i ? ", " : "") + shown(keys[i]);
  if (keys.size() > kNamed) text += concat(" and ", keys.size() - kNamed, " more");
  return text;
}

void throw_missing(const char* op, const std::vector<std::string>& keys, Milliseconds timeout) {
  throw TimeoutError(op, -1, missing_text(keys), " within ", timeout.count(), " ms");
}

}  // namespace gradus::dist::internal
