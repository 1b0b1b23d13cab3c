// Recomputation groups: consecutive layers of a stage that are recomputed separately.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/pipeline/schedule.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

// Note [Recomputation groups]
// A stage that is recomputed as a whole needs the memory of its whole forward. A stage in groups of layers
// saves the activations between groups, and needs the memory of one group at a time. Each group is
// implemented as a stage on the same rank, whose actions are adjacent in the list, so everything that applies
// to recomputed stages (Note [Recomputation] in recompute.h) applies to groups. autograd's checkpoint() is
// not used since it takes a function of tensors, which a stage of a forward is not, and does not restore
// buffers that other micro-batches change before the backward.
//
// A layer ends where a single floating-point tensor crosses, as after a block of a transformer or a ResNet. Then
// no op runs in two groups, and gradients are added in the order of the undivided stage, except for parameters
// that several groups read: each group adds its gradient separately.

// Returns for each stage the paths of the modules after which a group ends: every `every` layers.
// Errors: those of cuts_after and check_cuts.
std::vector<std::vector<std::string>> group_ends(const StagedModel::Parts& parts, int stages, int every);

// Replaces each stage s by groups_of_stage[s] stages. Returns `lists` if groups_of_stage is empty.
ActionLists in_groups(const ActionLists& lists, const std::vector<int>& groups_of_stage);

}  // namespace gradus::dist::internal
