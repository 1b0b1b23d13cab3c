// SeparateDistributedDataParallel: data parallelism per direct child module, each with a reducer and a group
// of its own, as mmengine's MMSeparateDistributedDataParallel.
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
#pragma once

#include "gradus/distributed/data_parallel/distributed_data_parallel.h"

namespace gradus::dist {

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
