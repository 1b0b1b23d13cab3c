// PipelineReport: a breakdown of the time of recorded pipeline steps, compared with a simulation.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/pipeline/pipeline_record.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"

namespace gradus::dist {

// All times are seconds. Those of a rank are means over the steps.

// The mean times of a stage's actions; 0 for kinds of actions that do not occur.
struct StageReport {
  int stage = 0;
  int rank = 0;  // in the job
  double forward = 0, backward = 0, input_gradient = 0, weight_gradient = 0;
};

// busy + fill + drain + slower_stage + communication + overhead = the step's makespan.
struct RankReport {
  int rank = 0;               // in the job
  double busy = 0;            // in actions
  double fill = 0;            // before the rank's first action
  double drain = 0;           // after the rank's last action
  double slower_stage = 0;    // waiting for messages before they were sent
  double communication = 0;   // waiting for messages after they were sent
  double overhead = 0;        // between actions without waiting
  int64_t max_in_flight = 0;  // maximal number of micro-batches between F and the end of B or W
  double sent_bytes = 0;      // per step, to other ranks
  double reduced_bytes = 0;   // per step, gradients sent by the all-reduce over replicas
};

struct PipelineReport {
  int64_t steps = 0;
  std::vector<StageReport> stages;  // in the order of PipelineRecord::ranks, then by stage
  std::vector<RankReport> ranks;
  // From the first action's begin to the last action's end, over the ranks of a pipeline.
  double makespan = 0;
  double idle_fraction = 0;  // 1 - time in actions / (ranks * makespan)
  // Results of simulate() for the recorded lists, with the stages' mean times and free communication.
  double predicted_makespan = 0, predicted_idle_fraction = 0;
};

// Errors: ValueError for a record without actions, or whose ranks recorded different steps.
PipelineReport make_report(const PipelineRecord& record);

// Returns a table of the stages, a table of the ranks, and a line with measured and simulated makespan.
std::string to_string(const PipelineReport& report);

// Returns each stage's mean times over all replicas, for simulate(). The time of B counts as input_gradient
// if the stage has no I and W.
// Errors: as for make_report.
std::vector<StageTimes> stage_times(const PipelineReport& report);

}  // namespace gradus::dist
