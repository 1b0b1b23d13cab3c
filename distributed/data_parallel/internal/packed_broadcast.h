// PackedBroadcast: broadcasts many tensors from one rank in few messages.
#pragma once

#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/work.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// The constructor starts the broadcast; finish() waits and writes the tensors. Tensors may have any dtypes,
// layouts and devices. Shapes and dtypes must be equal on all ranks. Open recordings do not record the
// broadcast.
class PackedBroadcast {
 public:
  // `root` is a rank in the group.
  PackedBroadcast(const Group& group, const std::vector<Tensor>& tensors, int root);
  void finish();

 private:
  struct Pack {
    std::vector<Tensor> tensors;
    Tensor flat;
    Work work;
  };
  bool is_root_;
  std::vector<Pack> packs_;
};

}  // namespace gradus::dist::internal
