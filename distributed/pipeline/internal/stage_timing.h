// measure_stage: how long a stage takes, measured by itself.
#pragma once

#include <functional>
#include <vector>

#include "gradus/distributed/pipeline/schedule_simulation.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

// Runs a stage of the model several times, with random numbers in place of what other stages send, and
// returns the median of each of its times. `forward` calls the model, and the loss if there is one; it
// returns what the backward begins with on the last stage. The model's gradients and buffers and the thread's
// generator are as before when it returns. With `split`, the two parts of the backward run apart; else the
// whole backward counts as `input_gradient`. `bytes` is what the process holds more after a forward: ranks
// that are threads count each other's. `input_bytes` are those of the tensors that other stages send.
// Errors: those of the model.
StageTimes measure_stage(nn::Module& model, const Cut& cut, int stage, bool split,
                         const std::function<std::vector<Tensor>()>& forward);

}  // namespace gradus::dist::internal
