// KeyTable: a std::map from key to bytes, with limits on keys, values and their total size. An operation that
// would exceed a limit throws StoreError and changes nothing. Not thread-safe; never waits.
#include "gradus/distributed/base/key_table.h"

#include <algorithm>
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

// The caller has made sure that missing(request) is empty: kGet and kPop read keys[0] without a check, and
// kWait has nothing left to do.
StoreAnswer KeyTable::execute(const StoreRequest& request) {
  const auto& [op, keys, values, amount, timeout] = request;
  const std::string* const old = keys.empty() ? nullptr : find(keys[0]);
  const std::string_view before = old == nullptr ? std::string_view() : *old;
  switch (op) {
    case StoreRequest::Op::kSet:
      set(keys[0], values[0]);
      return {};
    case StoreRequest::Op::kGet:
      return {.value = *old};
    case StoreRequest::Op::kPop: {
      StoreAnswer answer{.value = *old};
      erase(keys[0]);
      return answer;
    }
    case StoreRequest::Op::kAdd:
      return {.number = add(keys[0], amount)};
    case StoreRequest::Op::kCompareSet:
      if (before != values[0]) return {.value = std::string(before)};
      return {.value = slot("compare_set", keys[0], values[1].size()).assign(values[1])};
    case StoreRequest::Op::kAppend:
      return {.number = int64_t(
                  slot("append", keys[0], before.size() + values[0].size()).append(values[0]).size())};
    case StoreRequest::Op::kCheck:
      return {.number = std::ranges::all_of(keys, [&](auto key) { return find(key) != nullptr; })};
    case StoreRequest::Op::kDelete:
      return {.number = erase(keys[0])};
    case StoreRequest::Op::kNumKeys:
      return {.number = int64_t(values_.size())};
    case StoreRequest::Op::kWait:
      break;
  }
  return {};
}

std::vector<std::string> KeyTable::missing(const StoreRequest& request) const {
  std::vector<std::string> absent;
  for (const std::string_view key : request.keys)
    if (request.waits() && find(key) == nullptr) absent.emplace_back(key);
  return absent;
}

// An absent or empty value counts as 0.
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

bool KeyTable::erase(std::string_view key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return false;
  bytes_ -= it->first.size() + it->second.size();
  values_.erase(it);
  return true;
}

void KeyTable::erase_all_except(std::string_view prefix) {
  std::erase_if(values_, [&](const auto& entry) {
    const bool erased = !entry.first.starts_with(prefix);
    if (erased) bytes_ -= entry.first.size() + entry.second.size();
    return erased;
  });
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
