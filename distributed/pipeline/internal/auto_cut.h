// choose_cuts: chooses the cuts of a model into stages automatically.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/internal/recompute_choice.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

// Note [Automatic cuts]
// A cut may be placed after any module call. Candidates are the positions with the fewest crossing tensors
// (between the blocks of a network, not within them); positions with more crossing tensors are added until
// there are at least twice as many candidates as stages. The part of the model between two candidates is a
// unit. Ranks measure different units concurrently, so that the measurement has the load of training. A rank
// has memory for one unit at a time. Dynamic programming (balance.h) then finds the cuts that minimize the
// time of the slowest stage.

struct CutOptions {
  int64_t memory_limit = 0;  // bytes per rank; 0: no limit
  Recompute recompute = Recompute::kNever;
  int recompute_every = 0;  // units per recomputation group; 0: the whole stage
};

struct CutChoice {
  std::vector<std::string> cut_after;
  std::vector<StageTimes> stages;  // per stage, sums over its units
};

// Chooses cuts for the stages of `lists`, for micro-batches of the example's size. The estimate of a rank's
// memory is 4 * parameters (with gradients and two moments) + the inputs and saved tensors of its
// micro-batches in flight. A stage with kAuto is recomputed if it would need more than limit / (stages of its
// rank). All ranks get the same result. Collective over the job.
// Errors: ValueError for a model with fewer possible cuts than needed, and if all choices exceed the limit.
CutChoice choose_cuts(const StagedModel::Parts& parts, const ActionLists& lists, const CutOptions& options);

// Returns the calls after which the model may be cut, in order. If nested calls end together, only the
// outermost is returned.
std::vector<int> outermost_calls(const ModelTrace& trace);
// Returns plan_stages(trace, cuts), or nullopt if plan_stages throws ValueError.
std::optional<StagePlan> plan_if_possible(const ModelTrace& trace, const std::vector<int>& cuts);
// Returns whether the lists split backwards into I and W.
bool splits_backwards(const ActionLists& lists);

}  // namespace gradus::dist::internal
