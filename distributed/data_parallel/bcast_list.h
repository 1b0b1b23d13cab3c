// bcast_list_: broadcasts tensors, a model or an optimizer from one rank to all ranks.
//
//   dist::bcast_list_(net.parameters());
//   dist::bcast_list_(net);        // buffers as well
//   dist::bcast_list_(optimizer);  // momenta, step counts, learning rates
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/work.h"
#include "gradus/nn/module.h"
#include "gradus/optim/optimizer.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist {

struct BcastListOptions {
  Group group = {};
  int src = -1;        // rank in the job; -1: the group's first
  bool verify = true;  // compares a checksum of the result over all ranks
};

// Overwrites the tensors' elements with those of rank src, packed into few messages. Tensors keep their
// identity, layout and device.
// Shapes: equal on all ranks, tensor by tensor.
// Errors: MismatchError, before any tensor is changed, naming the ranks and the first tensor whose shape or
// dtype differs; StateError if an open recording tracks a tensor.
void bcast_list_(const std::vector<Tensor>& tensors, const BcastListOptions& options = {});
// Error messages contain the names.
void bcast_list_(const nn::StateDict& tensors, const BcastListOptions& options = {});
// Broadcasts a module's parameters and buffers.
void bcast_list_(const nn::Module& module, const BcastListOptions& options = {});
// Broadcasts an optimizer's state and options. Ranks other than src need no state of their own yet.
void bcast_list_(optim::Optimizer& optimizer, const BcastListOptions& options = {});

// Compares the tensors of all ranks bit by bit, through checksums.
// Errors: MismatchError, the same on all ranks, naming the first tensor that differs, and the ranks whose
// value differs from that of the group's majority.
void check_synchronized(const nn::StateDict& tensors, const Group& group = {});
void check_synchronized(const nn::Module& module, const Group& group = {});

namespace internal {
// Returns all parameters and buffers by name: state_dict() and the buffers that are not persistent.
nn::StateDict named_tensors(const nn::Module& module);

// Broadcasts many tensors from one rank in few messages. The constructor starts the broadcast; finish() waits
// and writes the tensors. Tensors may have any dtypes, layouts and devices. Shapes and dtypes must be equal on
// all ranks. Open recordings do not record the broadcast.
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
}  // namespace internal

}  // namespace gradus::dist
