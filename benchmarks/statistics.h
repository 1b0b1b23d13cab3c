// Helpers of the benchmarks: elapsed seconds, quantiles and medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace gradus::bench {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F> double seconds_of(F&& f) {
  const double start = seconds_now();
  f();
  return seconds_now() - start;
}

// Returns the q-quantile: the nearest element of the sorted values.
inline double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}
inline double median(const std::vector<double>& v) { return quantile(v, 0.5); }

}  // namespace gradus::bench
