// measure_stage: measures the time and memory of one stage of a pipeline; and helpers for measured times.
// Times are seconds, memory is bytes.
#pragma once

#include <functional>
#include <vector>

#include "gradus/distributed/pipeline/schedule_simulation.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

// The measured members of StageTimes.
inline constexpr double StageTimes::*kStageTimes[] = {&StageTimes::forward, &StageTimes::input_gradient,
                                                      &StageTimes::weight_gradient, &StageTimes::bytes,
                                                      &StageTimes::input_bytes};

// Returns the sums of the stages' kStageTimes over all ranks, divided by `divisor`. All ranks pass equally
// many stages, with zeros for stages that they have not measured. Collective over the job.
std::vector<StageTimes> sum_over_ranks(std::vector<StageTimes> stages, double divisor = 1);

// Runs a stage several times on the Context's device, with random inputs in place of other stages' results,
// and returns the median of each time. `forward` calls the model and the loss, if there is one, and returns
// the tensors from which the last stage's backward starts. The model's gradients and buffers and the thread's
// generator are restored. If `split_backward`, the backward runs as I (input gradient) and W (weight
// gradient); otherwise the time of the whole backward is `input_gradient`. `bytes` is the growth of the
// process's live memory in a forward; ranks that are threads of one process count each other's memory.
// `input_bytes` is the size of the received tensors.
// Errors: those of the model.
StageTimes measure_stage(nn::Module& model, const StageSplit& split, int stage, bool split_backward,
                         const std::function<std::vector<Tensor>()>& forward);

}  // namespace gradus::dist::internal
