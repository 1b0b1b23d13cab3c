// simulate: predicts a step's time and memory from its lists and the times of its actions.
#pragma once

#include <vector>

#include "gradus/distributed/pipeline/schedule.h"

namespace gradus::dist {

// Of one stage and micro-batch, in seconds. B takes I + W.
struct StageTimes {
  double forward = 0, input_gradient = 0, weight_gradient = 0;
  double bytes = 0;        // that a forward leaves behind until the backward has ended
  double input_bytes = 0;  // that the stage has received for it, besides
  // The forward leaves nothing behind, and runs again at the begin of B or I.
  bool runs_again = false;
};
struct LinkTimes {
  // Seconds that a message takes to another rank, beside computation: latency and transfer.
  double forward = 0, backward = 0;
};

struct RankPrediction {
  double busy = 0;            // seconds in actions
  double begin = 0, end = 0;  // of its first and last action
  int64_t most_held = 0;      // micro-batches of its stages at once, between F and the end of B or W
  double most_bytes = 0;      // of what they have received, and leave behind
};
struct SchedulePrediction {
  double makespan = 0;       // from the first action's begin to the last one's end
  double idle_fraction = 0;  // idle time / (ranks * makespan)
  std::vector<RankPrediction> ranks;
  std::vector<std::vector<double>> begins;  // of each rank's actions
};

// Runs the lists in simulated time: each action begins when the one before it on its rank has ended, and what
// it waits for has arrived. Six million actions take about a second.
// Errors: those of check_schedule; ValueError unless there are times for each stage, of at least 0.
SchedulePrediction simulate(const ActionLists& lists, const std::vector<StageTimes>& stages,
                            LinkTimes links = {});

}  // namespace gradus::dist
