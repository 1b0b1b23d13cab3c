// simulate: predicts a step's time and memory from its lists and the times of its actions.
#pragma once

#include <vector>

#include "gradus/distributed/pipeline/schedule.h"

namespace gradus::dist {

// Times in seconds and memory in bytes of one micro-batch on one stage. B takes I + W.
struct StageTimes {
  double forward = 0, input_gradient = 0, weight_gradient = 0;
  double bytes = 0;        // saved tensors, from the forward to the end of the backward
  double input_bytes = 0;  // received inputs, not included in `bytes`
  // Recomputation: the forward saves nothing, and runs again at the start of B or I.
  bool recomputed = false;
};

struct RankPrediction {
  double busy = 0;            // seconds in actions
  int64_t max_in_flight = 0;  // maximal number of pairs (stage, micro-batch) between F and the end of B or W
  double peak_bytes = 0;      // peak memory of received inputs and saved tensors
};
struct SchedulePrediction {
  double makespan = 0;       // seconds from the first action's begin to the last action's end
  double idle_fraction = 0;  // idle time / (ranks * makespan)
  std::vector<RankPrediction> ranks;
  std::vector<std::vector<double>> begins;  // per rank, the begin of each action in seconds
};

// Runs the lists in simulated time: each action begins when its predecessor on the rank has ended and its
// inputs have arrived. A message to another rank takes message_seconds (latency + transfer), in parallel with
// computation. Six million actions take about a second.
// Errors: ScheduleError, as check_schedule; ValueError unless `stages` has finite times >= 0 for each stage,
// and message_seconds >= 0.
SchedulePrediction simulate(const ActionLists& lists, const std::vector<StageTimes>& stages,
                            double message_seconds = 0);

}  // namespace gradus::dist
