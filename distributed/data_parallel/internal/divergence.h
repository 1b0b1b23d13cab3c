// Finds what has gone wrong on one rank, with the same result on all ranks. All calls are collective
// over the group.
#pragma once

#include <optional>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// A tensor that is not the same on all ranks: member `odd` has another value than most members (on a tie,
// than the first member).
struct Difference {
  size_t tensor;
  int odd, usual;
};
// Returns the first such tensor; nothing if all are the same, bit by bit. All ranks give
// equally many tensors.
std::optional<Difference> find_difference(const Group& group, const std::vector<Tensor>& tensors);

// Where a gradient has NaN or infinity. tensor is -1 if no gradient has.
struct NotFinite {
  int64_t tensor = -1, element = 0;
};
// Returns every member's `mine`.
std::vector<NotFinite> share(const Group& group, const NotFinite& mine);

}  // namespace gradus::dist::internal
