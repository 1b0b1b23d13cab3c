// CallLog: the last collectives of a rank, for the text of timeouts.
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "gradus/distributed/base/call_record.h"

namespace gradus::dist::internal {

class CallLog {
 public:
  static constexpr size_t kCalls = 256;

  void add(const CallRecord& record, const std::string& group);
  // Returns one line per call, newest first; equal calls in a row share a line. "" without calls.
  std::string text() const;

 private:
  struct Entry {
    CallRecord record;
    std::string group;
  };
  mutable std::mutex mutex_;
  std::array<Entry, kCalls> entries_;
  size_t count_ = 0;  // number of all calls so far
};

}  // namespace gradus::dist::internal
