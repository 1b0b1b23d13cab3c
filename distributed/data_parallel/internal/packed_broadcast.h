// Many tensors of one rank to all, in few messages.
#pragma once

#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/work.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Under way from construction to finish(), which writes the tensors. Any dtypes, layouts and devices; shapes
// and dtypes are equal on all ranks. Open recordings do not see it.
class PackedBroadcast {
 public:
  // `root` is an index in the group.
  PackedBroadcast(const Group& group, const std::vector<Tensor>& tensors, int root);
  void finish();

 private:
  struct Pack {
    std::vector<Tensor> tensors;
    Tensor flat;
    Work work;
  };
  bool mine_;
  std::vector<Pack> packs_;
};

}  // namespace gradus::dist::internal
