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
  Group group = {};    // default: all ranks
  int src = -1;        // the sending rank, as a rank in the job; -1: the group's first
  bool verify = true;  // compares checksums of the results over all ranks; a difference is a MismatchError
};

// Overwrites the tensors' elements with those of rank src, packed into few messages. Tensors keep their
// storage, layout and device. Collective: all ranks pass lists of equal names, shapes and dtypes.
// Errors: MismatchError, before any tensor is changed, naming the ranks and the first tensor that differs;
// StateError if an open recording tracks a tensor; ValueError for an undefined tensor, and if src or this
// rank is not in the group.
void bcast_list_(const std::vector<Tensor>& tensors, const BcastListOptions& options = {});
// The same; error messages contain the names.
void bcast_list_(const nn::StateDict& tensors, const BcastListOptions& options = {});
// Broadcasts a module's parameters and buffers.
void bcast_list_(const nn::Module& module, const BcastListOptions& options = {});
// Broadcasts an optimizer's state and options, always with `verify`. Ranks other than src need no state yet.
void bcast_list_(optim::Optimizer& optimizer, const BcastListOptions& options = {});

// Compares the tensors of all ranks bit by bit, through checksums. Collective over the group.
// Errors: MismatchError, the same on all ranks, naming the first tensor that differs, and the ranks whose
// value differs from that of the group's majority.
void check_synchronized(const nn::StateDict& tensors, const Group& group = {});
void check_synchronized(const nn::Module& module, const Group& group = {});

namespace internal {
// Returns all parameters and buffers by name, including the buffers that state_dict() omits (not persistent).
nn::StateDict named_tensors(const nn::Module& module);

// Broadcasts tensors of any dtypes and layouts from one rank in messages of about 25 MiB. Each is on a GPU on all ranks,
// or on none. The constructor copies the root's tensors and starts the broadcast; finish(), to be called once on all ranks,
// waits and writes other ranks' tensors.
// Shapes and dtypes must be equal on all ranks (not checked). Recordings do not record the broadcast.
class PackedBroadcast {
 public:
  // `root` is a rank in the group.
  PackedBroadcast(const Group& group, const std::vector<Tensor>& tensors, int root);
  void finish();

 private:
  struct Pack {
    std::vector<Tensor> tensors;  // all on GPUs, or none
    int64_t bytes = 0;            // of all
    Tensor flat = {};             // u8 [bytes], on a GPU or the host: the tensors' elements, each row-major
    Work work = {};               // the broadcast of flat

    std::vector<Tensor> views() const;  // of the tensors in flat
  };
  bool is_root_;
  std::vector<Pack> packs_;
};
}  // namespace internal

}  // namespace gradus::dist
