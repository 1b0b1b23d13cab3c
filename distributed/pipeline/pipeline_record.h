// PipelineRecord: what the ranks of a pipeline did in some steps, and when.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/distributed/pipeline/schedule.h"

namespace gradus::dist {

// All times are nanoseconds on one clock: the monotonic one of the first rank's host.

struct ActionRecord {
  Action action;
  int64_t begin = 0, end = 0;  // begins when all that it waits for has come
  int64_t held_bytes = 0;      // of all tensors of the process, as the action ends
};

// One end of a message to or from another rank.
struct MessageRecord {
  int action = 0;  // which of the step's actions sends it, or waits for it
  bool received = false;
  int peer = 0;  // the other rank: its place in the pipeline
  // What is sent: the input number `slot` of a stage, or its gradient.
  int stage = 0, micro_batch = 0, slot = 0;
  bool gradient = false;
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;  // of the call; of a receive, the time that the rank waited
};

struct StepRecord {
  uint64_t number = 0;  // counts the pipeline's steps
  std::vector<ActionRecord> actions = {};
  std::vector<MessageRecord> messages = {};
  int64_t reduced_bytes = 0;  // of gradients, given to the all-reduce over replicas
};

struct RankRecord {
  int rank = 0;     // in the job
  int replica = 0;  // which pipeline it is part of
  int place = 0;    // its place in the pipeline
  std::vector<StepRecord> steps = {};
};

// Has all ranks of the job, replica by replica, each in the order of its pipeline. All have the same steps.
struct PipelineRecord {
  std::vector<RankRecord> ranks;
};

}  // namespace gradus::dist
