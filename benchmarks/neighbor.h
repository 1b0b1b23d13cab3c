// Times training steps while another process keeps one of the same cores busy.
#pragma once

#include "benchmarks/workloads.h"

namespace gradus::bench {

// Seconds per step, medians over rounds: without (quiet) and with (busy) the other process, and busy / quiet.
// `low` and `high` are the 10 % and 90 % quantiles of the ratio.
struct NeighborTimes {
  double quiet = 0, busy = 0, ratio = 0, low = 0, high = 0;
};

// Measures in a child process, since the thread pools of Gradus and LibTorch would disturb each other.
// Errors: std::runtime_error if the process fails.
NeighborTimes time_beside_busy_process(Side side, const Entry& entry, int threads, int rounds);

}  // namespace gradus::bench
