// CallLog: the last collectives of a rank, for the text of timeouts.
#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "gradus/distributed/base/call_record.h"

namespace gradus::dist::internal {

class CallLog {
 public:
  void add(const CallRecord& record, const std::string& group);
  // Returns one line per call, newest first; equal calls in a row share a line. "" without calls.
  std::string text() const;

 private:
  struct Entry {
    CallRecord record;
    std::string group;
  };
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // newest first
};

}  // namespace gradus::dist::internal
