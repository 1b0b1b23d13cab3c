// Implementation of the reducer's statistics.
#include "gradus/distributed/data_parallel/internal/reducer_statistics.h"

#include <algorithm>

namespace gradus::dist::internal {

void count(ReducerStats& stats, TimePoint begun, TimePoint computed,
           const std::vector<BucketTraffic>& buckets) {
  const auto seconds = [](TimePoint from, TimePoint to) {
    return std::chrono::duration<double>(to - from).count();
  };
  stats = {.backwards = stats.backwards + 1, .canceled = stats.canceled, .buckets = int(buckets.size())};
  TimePoint until = begun;  // communication before `until` is counted, so overlaps of buckets count once
  for (const BucketTraffic& bucket : buckets) {
    const TimePoint start = std::max(until, bucket.start), end = std::max(start, bucket.end);
    stats.bytes += bucket.bytes;
    stats.communication_s += seconds(start, end);
    stats.exposed_s += seconds(std::max(start, computed), std::max(end, computed));
    until = std::max(until, end);
  }
  stats.backward_s = seconds(begun, clock_now());
}

}  // namespace gradus::dist::internal
