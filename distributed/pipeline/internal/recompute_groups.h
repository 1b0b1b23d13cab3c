// Groups of a stage's layers, each of which runs again by itself.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/pipeline/recompute.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

// Note [Recomputation in groups]
// A stage that runs again as a whole needs the memory of its whole forward. In groups of layers it keeps what
// crosses from group to group, and needs the memory of one group. A group is a stage of its own that lies on
// the same rank, and whose actions stand beside the others' in the list. So what is true of a stage that runs
// again is true of a group: any forward will do, random numbers and the state of layers are those of the
// first run, a backward in two parts needs one run, and groups at whose end the backward begins can be left
// out. A checkpoint within the model would also fit a stage. But it takes a function of tensors, which a
// forward written by hand would have to be made into, and it knows nothing of a state that other
// micro-batches change before its backward.
//
// A layer ends where a single floating tensor crosses: it is a block of a transformer or a ResNet. Then no op
// runs in two groups, and gradients are added up in the order of the undivided stage. Parameters that several
// groups read are the exception: each group adds its gradient by itself.

// Returns for each stage the modules after which a group ends within it: after each `every` layers. Stages
// that never run again have none.
// Errors: ValueError as cuts_after; unless there are as many stages as `of_stage` has.
std::vector<std::vector<std::string>> group_ends(const StagedModel::Parts& parts,
                                                 const std::vector<Recompute>& of_stage, int every);

// Returns the lists with so many stages in place of each one. Empty: with the same stages.
ActionLists in_groups(const ActionLists& lists, const std::vector<int>& groups_of_stage);

}  // namespace gradus::dist::internal
