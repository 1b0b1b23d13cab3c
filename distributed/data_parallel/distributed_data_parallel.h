// DistributedDataParallel: a model whose gradients are those of all ranks together. Any model: also one with
// several losses (GANs), whose ranks use different parameters, or that grows.
//
//   dist::DistributedDataParallel ddp(net);      // compares the models, makes rank 0's weights everybody's
//   GradManager gm;
//   ddp.attach(gm);
//   { auto recording = gm.record(); gm.backward(loss(ddp(x), y)); opt.step().clear_grad(); }
//
//   { auto recording = gm.record({.only = ddp->disc.parameters()}); ... }      // a GAN under one manager
//
// The model stays the user's: ddp->disc is its member, names have no prefix, state_dict() is the model's own.
// Parameters that the model gets later (a network that grows) are found when the next recording opens: ranks
// agree on them, and take over rank 0's values. Buffers (running statistics) become rank 0's after every
// backward that synchronizes. In a group of one nothing is communicated and gradients stay as they are.
//
// In others, a recording of its parameters by a manager to which it is not attached,
// gm.attach(net.parameters()) alone, is a StateError: nobody would reduce the gradients.
// Except within no_sync().
#pragma once

#include "gradus/distributed/data_parallel/data_parallel_wrapper.h"

namespace gradus::dist {

// Most of what it has is in data_parallel_wrapper.h.
template <class M>
class DistributedDataParallel
    : public internal::DataParallelWrapper<DistributedDataParallel<M>, M, internal::WholeModel> {
 public:
  // The module must outlive it. Collective over the group.
  explicit DistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : DistributedDataParallel::DataParallelWrapper(module, std::move(options)) {}

  const std::shared_ptr<AllReduceCallback>& callback() const { return this->models_.first().callback(); }
  const ReducerStats& stats() const { return callback()->stats(); }
};

}  // namespace gradus::dist
