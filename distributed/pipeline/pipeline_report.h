// PipelineReport: a breakdown of the measured time of recorded pipeline steps, compared with a simulation. A
// rank runs a list of actions. An action computes one micro-batch on one stage: F the forward, B the
// backward. A schedule may split B into I, the gradient of the stage's input, and W, the gradients of the
// stage's parameters. With data parallelism there are several replicas of the pipeline.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/pipeline/pipeline_record.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"

namespace gradus::dist {

// All times are seconds.

// Mean times of one F, B, I and W on a stage, over all micro-batches and steps; 0 if there are none.
struct StageReport {
  int stage = 0;
  int rank = 0;  // world rank
  double forward = 0, backward = 0, input_gradient = 0, weight_gradient = 0;
};

// Times of a rank per step, as means over the steps. The sum busy + fill + drain + slower_stage +
// communication + overhead is the mean makespan of the rank's pipeline: from the begin of the first action on
// any of its ranks to the end of the last.
struct RankReport {
  int rank = 0;               // world rank
  double busy = 0;            // in actions
  double fill = 0;            // from the begin of the step to the rank's first action
  double drain = 0;           // from the rank's last action to the end of the step
  double slower_stage = 0;    // waiting for a message that the sender has not sent yet
  double communication = 0;   // waiting for a message that has been sent
  double overhead = 0;        // between actions, not waiting for a message
  int64_t max_in_flight = 0;  // maximal number of micro-batches between F and the end of B or W, in any step
  double sent_bytes = 0;      // activations and gradients sent to other ranks of the pipeline, mean per step
  double all_reduce_bytes = 0;  // gradients sent by the all-reduce over replicas, mean per step
};

struct PipelineReport {
  int64_t steps = 0;
  std::vector<StageReport> stages;  // by replica, then by rank in the pipeline, then by stage
  std::vector<RankReport> ranks;    // by replica, then by rank in the pipeline
  // From the begin of a pipeline's first action to the end of its last. Mean over steps and replicas.
  double makespan = 0;
  double idle_fraction = 0;  // 1 - time in actions / (ranks * makespan)
  // The same for simulated steps: simulate() runs the recorded lists of actions with the mean times of each
  // stage, and messages that take no time.
  double predicted_makespan = 0, predicted_idle_fraction = 0;
};

// Makes the report of a record as PipelineBase::gather_records returns it.
// Errors: ValueError for no steps, a rank without actions in a step, and different steps of the ranks.
PipelineReport make_report(const PipelineRecord& record);

// Returns as text a table of the stages, a table of the ranks, and a line with measured and simulated
// makespan and idle time. Times in the text are milliseconds.
std::string to_string(const PipelineReport& report);

// Returns each stage's mean times over all replicas, by stage, as an argument of simulate(). A stage without
// I and W has the time of B as its input_gradient, and 0 as its weight_gradient.
std::vector<StageTimes> stage_times(const PipelineReport& report);

}  // namespace gradus::dist
