// choose_cuts: where a model is cut when its user names no cuts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/internal/recompute_choice.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

// Note [Automatic cuts]
// A cut may lie after each call of a module. Taken are the places over which the fewest tensors go: between
// the blocks of a network, not within them, as long as there are twice as many places as stages. What lies
// between two places is a unit. Each rank measures some of the units, all ranks at once, so that each is
// measured beside as much other work as there will be. Only one unit has memory on a rank at a time. Then a
// search over all ways to cut finds the one whose slowest stage is fastest.

struct CutOptions {
  int64_t memory_limit = 0;               // bytes per rank; 0: none
  std::vector<Recompute> recompute = {};  // of each stage; empty: never
  int recompute_every = 0;                // units of a group that runs again by itself; 0: all of a stage
};

struct CutChoice {
  std::vector<std::string> cut_after;
  std::vector<StageTimes> stages;  // sums over their units
};

// Chooses cuts for the stages of `lists`, at the size of the example's batch. The estimate of a rank's memory
// is 4 times its parameters (with their gradients and two moments) and what its lists hold. A stage with
// kAuto runs its forwards again if it needs more than its share of the limit. All ranks get the same result.
// Collective over the job.
// Errors: ValueError for a model with fewer places than cuts, or of which no cut keeps the limit.
CutChoice choose_cuts(const StagedModel::Parts& parts, const ActionLists& lists, const CutOptions& options);

// Returns the calls after which the model may be cut, in order. Where several end, it is the outermost one.
std::vector<int> outermost_calls(const ModelTrace& trace);
// Returns nothing where plan_stages throws.
std::optional<StagePlan> plan_if_possible(const ModelTrace& trace, const std::vector<int>& cuts);
// Returns whether the lists have I and W, and not B alone.
bool splits_backwards(const ActionLists& lists);

}  // namespace gradus::dist::internal
