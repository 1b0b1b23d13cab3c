// PipelineReport: where the time of a pipeline's steps went, beside what theory says.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/pipeline/pipeline_record.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"

namespace gradus::dist {

// All times are seconds. Those of a rank are means over the steps.

// The mean times of a stage's actions; 0 for those that its list does not have.
struct StageReport {
  int stage = 0;
  int rank = 0;  // in the job
  double forward = 0, backward = 0, input_gradient = 0, weight_gradient = 0;
};

// All but `most_held` and the bytes add up to the step's makespan.
struct RankReport {
  int rank = 0;              // in the job
  double busy = 0;           // in actions
  double fill = 0;           // before the first action
  double drain = 0;          // after the last one
  double slower_stage = 0;   // waiting for what was not sent yet
  double communication = 0;  // waiting for what was sent
  double overhead = 0;       // between actions, waiting for nothing
  int64_t most_held = 0;     // micro-batches of its stages at once, between F and the end of B or W
  double sent_bytes = 0;     // per step, to other ranks
  double reduced_bytes = 0;  // per step, of gradients given to the all-reduce over replicas
};

struct PipelineReport {
  int64_t steps = 0;
  std::vector<StageReport> stages;  // as PipelineRecord's ranks, each one's stages in order
  std::vector<RankReport> ranks;
  // From the first action's begin to the last one's end, over the ranks of a pipeline.
  double makespan = 0;
  double idle_fraction = 0;  // 1 - time in actions / (ranks * makespan)
  // The same of a simulation of the lists that ran, with the stages' times and no time for messages.
  double predicted_makespan = 0, predicted_idle_fraction = 0;
};

// Errors: ValueError for a record without actions, or whose ranks did not run the same steps.
PipelineReport make_report(const PipelineRecord& record);

// Returns a table of the stages, a table of the ranks, and a line that compares with theory.
std::string to_string(const PipelineReport& report);

// Returns each stage's mean times, for simulate(). A whole backward counts as an input gradient, if the
// stage's backward did not run in parts. Replicas count alike.
// Errors: as for make_report.
std::vector<StageTimes> stage_times(const PipelineReport& report);

}  // namespace gradus::dist
