// Chooses the modules after which a model is cut into the stages of a pipeline, and those after which
// recomputation groups (parts of a stage that run again before their backward) end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/recompute.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

// Note [Automatic cuts]
// A cut may be placed after any module call. Candidates are the positions with the fewest crossing tensors
// (between the blocks of a network, not within them); positions with more crossing tensors are added until
// there are at least twice as many candidates as stages. The part of the model between two candidates is a
// unit. Ranks measure different units concurrently, so that the measurement has the load of training. A rank
// has memory for one unit at a time. balance() then finds the cuts that minimize the slowest stage's time.

struct CutOptions {
  int64_t memory_limit = 0;  // bytes per rank; 0: no limit
  Recompute recompute = Recompute::kNever;
  int recompute_every = 0;  // units per recomputation group; 0: the whole stage
};

struct CutChoice {
  std::vector<std::string> cut_after;  // stages - 1 paths of modules, in the order of the forward
  std::vector<StageTimes> stages;      // per stage, sums over its units
};

// Chooses cuts for the stages of `lists`, for micro-batches of the example's size. The estimate of a rank's
// memory is 4 * parameters (with gradients and two moments) + the inputs and saved tensors of its
// micro-batches in flight. A stage with kAuto is recomputed if it would need more than limit / (stages of its
// rank). All ranks get the same result. Collective over the job. The model is made anew from `parts`.
// Errors: ValueError for a model with fewer possible cuts than needed, and if all choices exceed the limit.
CutChoice choose_cuts(const StagedModel::Parts& parts, const ActionLists& lists, const CutOptions& options);

// Returns the time of units [begin, end) as one stage; infinity if they cannot be one stage.
using StageSeconds = std::function<double(int stage, int begin, int end)>;
// Linear partitioning of units by dynamic programming, in time O(stages * units^2). bytes_after[u] is the
// number of bytes that cross a cut after unit u. Returns for each stage the end of its range of units; ranges
// are not empty. Among the partitions whose slowest stage is within 1 % of the optimum, returns the one with
// the fewest crossing bytes. Returns an empty list if every partition has a stage with infinite time.
std::vector<int> balance(const std::vector<double>& bytes_after, int stages, const StageSeconds& seconds);

// Returns whether the lists split backwards into I (input gradient) and W (weight gradient).
bool splits_backwards(const ActionLists& lists);

// Note [Recomputation groups]
// A stage that is recomputed as a whole needs the memory of its whole forward. A stage in groups of layers
// saves the activations between groups, and needs the memory of one group at a time. Each group is
// implemented as a stage on the same rank, whose actions are adjacent in the list, so everything that applies
// to recomputed stages (Note [Recomputation] in recompute.h) applies to groups. autograd's checkpoint() is
// not used since it takes a function of tensors, which a stage of a forward is not, and does not restore
// buffers that other micro-batches change before the backward.
//
// A layer ends where a single floating-point tensor crosses, as after a block of a transformer or a ResNet.
// Then no op runs in two groups, and gradients are added in the order of the undivided stage, except for
// parameters that several groups read: each group adds its gradient separately.

// Returns for each stage of parts.cut_after, which has stages - 1 cuts, the paths of the modules after which
// a group ends: every `every` >= 1 layers, without the stage's last group. Not collective.
// Errors: ValueError for an unknown path or another number of cuts.
std::vector<std::vector<std::string>> group_ends(const StagedModel::Parts& parts, int stages, int every);

// Replaces each stage s by groups_of_stage[s] >= 1 stages. Returns `lists` if groups_of_stage is empty.
ActionLists in_groups(const ActionLists& lists, const std::vector<int>& groups_of_stage);

}  // namespace gradus::dist::internal
