// DistributedDataParallel: averages a model's gradients over all ranks, as PyTorch's class of this name. The
// model may have several losses (GANs), use different parameters on different ranks, and get new modules.
//
//   dist::DistributedDataParallel ddp(net);      // compares the models, broadcasts rank 0's weights
//   GradManager gm;
//   ddp.attach(gm);
//   { auto recording = gm.record(); gm.backward(loss(ddp(x), y)); opt.step().clear_grad(); }
//
//   { auto recording = gm.record({.only = ddp->disc.parameters()}); ... }      // a GAN under one manager
//
// The wrapper does not own or change the model: ddp->disc is the model's member, names have no prefix, and
// state_dict() is that of the model. Parameters that the model gets later (progressive growing) are found
// when the next recording opens: ranks compare them and broadcast rank 0's values. Buffers (running
// statistics) are broadcast from rank 0 after every synchronizing backward. In a group of one rank nothing is
// communicated and gradients do not change.
//
// In larger groups, a recording that tracks the model's parameters is a StateError if its manager is attached
// to the parameters but not to the wrapper (gm.attach(net.parameters()) alone), since the gradients would not
// be reduced. Recordings within no_sync() are exempt.
#pragma once

#include "gradus/distributed/data_parallel/data_parallel_model.h"

namespace gradus::dist {

// Most member functions are in data_parallel_model.h.
template <class M>
class DistributedDataParallel : public internal::DataParallelWrapper<DistributedDataParallel<M>, M> {
 public:
  // The module must outlive the wrapper. Collective over the group.
  explicit DistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : DistributedDataParallel::DataParallelWrapper(module, std::move(options), false) {}

  const std::shared_ptr<AllReduceCallback>& callback() const { return this->model_.callback(this->module_); }
  const ReducerStats& stats() const { return callback()->stats(); }
};

// Data parallelism per direct child module, each with a reducer and a group of its own, as mmengine's
// MMSeparateDistributedDataParallel.
//
//   dist::SeparateDistributedDataParallel ddp(gan);     // children gen and disc
//   GradManager gm_d, gm_g;
//   ddp.attach(gm_d, ddp->disc);
//   ddp.attach(gm_g, ddp->gen);
//   auto logs = ddp.train_step(data, optimizers);       // calls gan.train_step
//
// Children without parameters have no reducer until they get parameters. The parameters of the root module
// itself, which mmengine does not reduce, have a reducer as well. A shared parameter belongs to the first
// module that has it, in the order root, children.
//
// Most member functions are in data_parallel_model.h. `part` is a direct child, or the model for the
// parameters of the root module itself.
template <class M>
class SeparateDistributedDataParallel
    : public internal::DataParallelWrapper<SeparateDistributedDataParallel<M>, M> {
 public:
  // The module must outlive the wrapper. Options: as DistributedDataParallel; broadcast_buffers is off by
  // default.
  explicit SeparateDistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : SeparateDistributedDataParallel::DataParallelWrapper(module, std::move(options), true) {}

  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const {
    return this->model_.callback(part);
  }
  const ReducerStats& stats(const nn::Module& part) const { return callback(part)->stats(); }
};

}  // namespace gradus::dist
