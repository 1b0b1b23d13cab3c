// What has gone wrong on one rank, so that all say the same of it. All calls are collective over the group.
#pragma once

#include <optional>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// A tensor that is not the same on all ranks: that of member `odd` differs from that of most (of the first
// one, when there are as many of each).
struct Difference {
  size_t tensor;
  int odd, usual;
};
// The first such tensor, of as many on every rank; nothing when all are the same, bit by bit.
std::optional<Difference> find_difference(const Group& group, const std::vector<Tensor>& tensors);

// Where a gradient has NaN or infinity; tensor -1: nowhere.
struct NotFinite {
  int64_t tensor = -1, element = 0;
};
// Every member's first.
std::vector<NotFinite> share(const Group& group, const NotFinite& mine);

}  // namespace gradus::dist::internal
