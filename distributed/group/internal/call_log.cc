#include "gradus/distributed/group/internal/call_log.h"

#include <algorithm>

namespace gradus::dist::internal {
namespace {

constexpr int kLines = 16;  // more do not help the reader

}  // namespace

void CallLog::add(const CallRecord& record, const std::string& group) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[count_++ % kCalls];
  entry.record = record;
  entry.group = group;
}

std::string CallLog::text() const {
  std::lock_guard lock(mutex_);
  const size_t oldest = count_ - std::min(count_, kCalls);
  const auto what = [&](size_t i) {
    const Entry& entry = entries_[i % kCalls];
    return concat(describe(entry.record), " in group '", entry.group, "'");
  };
  std::string text;
  size_t end = count_;
  for (int line = 0; line < kLines && end > oldest; ++line) {
    const size_t newest = end - 1;
    const std::string call = what(newest);
    end = newest;
    while (end > oldest && what(end - 1) == call) --end;
    text += concat("\n  #", entries_[newest % kCalls].record.sequence, ' ', call);
    if (newest > end) text += concat(" and ", newest - end, " like it before");
  }
  return text;
}

}  // namespace gradus::dist::internal
