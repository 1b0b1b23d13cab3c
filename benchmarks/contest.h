// What the comparison runs: named workloads, the same names on both sides.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace gradus::bench {

struct Workload {
  std::string unit;                  // "ms" or "ns", of one repetition
  int repetitions = 1;               // per sample: enough for the clock
  std::function<void()> run;         // one sample: `repetitions` times the work
  double flops = 0, bytes = 0;       // of one repetition, where they mean something
};

// Built one at a time, so that a side's memory is that of the workload at hand. Unknown names give an empty `run`.
Workload make_gradus_workload(const std::string& name, int threads);
Workload make_libtorch_workload(const std::string& name, int threads);

}  // namespace gradus::bench
