// How ReducerStats come about.
#pragma once

#include <chrono>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"

namespace gradus::dist::internal {

inline TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// When a bucket was under way. The thread that moves it writes the end, before its Work is done.
struct BucketTraffic {
  TimePoint start, end;
  int64_t bytes = 0;
};

// Counts a backward that synchronized, which ends now. `computed`: when it had nothing left to compute.
void count(ReducerStats& stats, TimePoint begun, TimePoint computed,
           const std::vector<BucketTraffic>& buckets);

}  // namespace gradus::dist::internal
