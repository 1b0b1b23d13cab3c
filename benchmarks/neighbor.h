// Times training steps beside a busy neighbor on the same cores.
#pragma once

#include "benchmarks/workloads.h"

namespace gradus::bench {

// Seconds of a step, medians over rounds: alone, beside a process that keeps one core busy, and their ratio.
struct Beside {
  double quiet = 0, busy = 0, ratio = 0, low = 0, high = 0;
};

// Runs in a process of its own, for threads of one side disturb the other's. The ratio's 10 % and 90 %
// quantiles are `low` and `high`.
// Errors: std::runtime_error where the process fails.
Beside beside_neighbor(Side side, const Entry& entry, int threads, int rounds);

}  // namespace gradus::bench
