// StageRun: runs one stage of a model for one micro-batch.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "gradus/distributed/pipeline/stage_plan.h"

namespace gradus::dist::internal {

struct StageInput {
  std::vector<Tensor> received;            // per slot of StagePlan::needs
  std::array<uint64_t, 2> generator = {};  // its state as the stage begins
};

struct StageOutput {
  std::vector<Tensor> sent;                // as StagePlan::sends
  std::array<uint64_t, 2> generator = {};  // its state as the stage ended
};

// Runs `forward`, which calls the model, as far as the stage goes. `forward` returns normally on the last
// stage alone. The calling thread's generator has the given state when the stage begins.
// Errors: those of the forward; ValueError if the calls differ from the traced ones.
StageOutput run_stage(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input,
                      const std::function<void()>& forward);

}  // namespace gradus::dist::internal
