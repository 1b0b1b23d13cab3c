// PipelineRecord: the actions and messages of a pipeline's ranks in some steps, with times. An action
// computes one micro-batch on one stage (schedule.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gradus/distributed/pipeline/schedule.h"

namespace gradus::dist {

// All times are nanoseconds on the monotonic clock of the first rank's host.

struct ActionRecord {
  Action action;
  int64_t begin = 0, end = 0;  // begins after all received inputs have arrived
  int64_t held_bytes = 0;      // bytes of all live tensors of the process at the action's end
};

// One end of a message to or from another rank.
struct MessageRecord {
  int action = 0;  // index in StepRecord::actions of the action that sends or receives the message
  bool received = false;
  int peer = 0;  // the other rank, by its rank in the pipeline
  // The message is input number `slot` of a stage, or the gradient of that input.
  int stage = 0, micro_batch = 0, slot = 0;
  bool gradient = false;
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;  // duration of the send or receive call; a receive call blocks
};

struct StepRecord {
  uint64_t number = 0;  // number of the step, from 0; forwards and evaluations count as steps
  std::vector<ActionRecord> actions = {};
  std::vector<MessageRecord> messages = {};
  int64_t all_reduce_bytes = 0;  // size of the gradients that the all-reduce over replicas sent
};

struct RankRecord {
  int rank = 0;           // rank in the job
  int replica = 0;        // index of the rank's pipeline
  int pipeline_rank = 0;  // rank in its pipeline
  std::vector<StepRecord> steps = {};
};

// The records of all ranks, by replica, then by rank in the pipeline. All ranks have the same steps.
struct PipelineRecord {
  std::vector<RankRecord> ranks;
};

// Writes the record as JSON in the Trace Event Format of ui.perfetto.dev and chrome://tracing. Each rank is a
// process with a track of actions ("2F0") and a track of messages; the duration of a receive is the rank's
// waiting time. Flow arrows lead from the sending to the receiving action. Counters show the rank's
// micro-batches in flight and the bytes of its process's tensors.
// Overwrites the file.
// Errors: FileError naming the file.
void write_trace(const PipelineRecord& record, const std::filesystem::path& path);

}  // namespace gradus::dist
