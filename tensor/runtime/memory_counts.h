// The statistics of an allocator, which changes other numbers than the peaks itself. Not thread-safe: the
// allocator calls all functions under its lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gradus/tensor/runtime/allocator.h"

namespace gradus::internal {

// MemoryStats with the peaks of PeakMemory scopes.
class MemoryCounts : public MemoryStats {
 public:
  void add_live(int64_t bytes) {
    live_bytes += bytes;
    peak_bytes = std::max(peak_bytes, live_bytes);
    for (int64_t& peak : peaks_)
      if (peak >= 0 && live_bytes > peak) peak = live_bytes;
  }
  void reset_peak() { peak_bytes = live_bytes; }

  // begin_peak starts a PeakMemory scope (memory.h) and returns its number; peak(n) is the highest live_bytes
  // since then; end_peak(n) ends the scope, and its number may be reused.
  int begin_peak() {
    for (size_t i = 0; i < peaks_.size(); ++i)
      if (peaks_[i] < 0) return peaks_[i] = live_bytes, static_cast<int>(i);
    peaks_.push_back(live_bytes);
    return static_cast<int>(peaks_.size()) - 1;
  }
  int64_t peak(int scope) const { return peaks_[static_cast<size_t>(scope)]; }
  void end_peak(int scope) {
    peaks_[static_cast<size_t>(scope)] = -1;
    while (!peaks_.empty() && peaks_.back() < 0) peaks_.pop_back();
  }

 private:
  std::vector<int64_t> peaks_;  // one for each open scope; -1: free
};

}  // namespace gradus::internal
