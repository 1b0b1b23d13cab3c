#include "gradus/distributed/group/internal/call_log.h"

#include <algorithm>

namespace gradus::dist::internal {
namespace {

constexpr size_t kMaxCalls = 256;
constexpr int kMaxLines = 16;  // more do not help the reader

}  // namespace

void CallLog::add(const CallRecord& record, const std::string& group) {
  std::lock_guard lock(mutex_);
  entries_.push_front({record, group});
  if (entries_.size() > kMaxCalls) entries_.pop_back();
}

std::string CallLog::text() const {
  std::lock_guard lock(mutex_);
  const auto what = [](const Entry& entry) {
    return concat(describe(entry.record), " in group '", entry.group, "'");
  };
  std::string text;
  auto newest = entries_.begin();
  for (int line = 0; line < kMaxLines && newest != entries_.end(); ++line) {
    const std::string call = what(*newest);
    const auto other = std::find_if(newest, entries_.end(), [&](const Entry& e) { return what(e) != call; });
    text += concat("\n  #", newest->record.sequence, ' ', call);
    if (other - newest > 1) text += concat(" and ", other - newest - 1, " like it before");
    newest = other;
  }
  return text;
}

}  // namespace gradus::dist::internal
