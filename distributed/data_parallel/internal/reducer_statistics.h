// Computes ReducerStats from the times of buckets.
#pragma once

#include <chrono>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"

namespace gradus::dist::internal {

inline TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// The interval in which a bucket was in flight. The communication thread writes `end` before the bucket's
// Work completes.
struct BucketTraffic {
  TimePoint start, end;
  int64_t bytes = 0;
};

// Updates `stats` for a synchronizing backward that began at `begun` and ends now. `computed` is the end of
// its computation.
void count(ReducerStats& stats, TimePoint begun, TimePoint computed,
           const std::vector<BucketTraffic>& buckets);

}  // namespace gradus::dist::internal
