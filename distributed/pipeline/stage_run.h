// StageRun: runs one stage of a model for one micro-batch.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "gradus/distributed/pipeline/stage_plan.h"

namespace gradus::dist::internal {

struct StageInput {
  std::vector<Tensor> received;            // by slot of StagePlan::needs
  std::array<uint64_t, 2> generator = {};  // state of the random generator at the stage's start
};

struct StageOutput {
  std::vector<Tensor> sent;                // in the order of StagePlan::sends
  std::array<uint64_t, 2> generator = {};  // state of the random generator at the stage's end
};

// Runs `forward`, which calls the model, as one stage. Except on the last stage, the model returns tensors on the meta
// device. Sets the calling thread's generator to input.generator at the stage's start.
// Errors: those of the forward; ValueError if the calls differ from the traced ones.
StageOutput run_stage(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input,
                      const std::function<void()>& forward);

}  // namespace gradus::dist::internal
