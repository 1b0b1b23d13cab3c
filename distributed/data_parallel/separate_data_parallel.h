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

namespace internal {

// The reducers of SeparateDistributedDataParallel. All calls, and all recordings of attached managers, search
// every child for new parameters and buffers, and for new children. The search is collective if it finds any.
class SeparateModels {
 public:
  // Errors: as DistributedDataParallel.
  SeparateModels(nn::Module& module, DistributedDataParallelOptions options);

  // Errors: ValueError if `part` is neither the model nor a direct child with parameters; the error lists
  // the valid modules.
  void attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more);
  void attach_all(GradManager& gm, std::vector<Callback> more);
  std::vector<std::shared_ptr<AllReduceCallback>> callbacks() const;
  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const;
  // Returns the first child's model, for device_ids and output_device, which are equal for all children.
  const DataParallelModel& first() const;

 private:
  class State;
  class Watcher;
  std::shared_ptr<State> state_;
};

}  // namespace internal

// Most member functions are in data_parallel_wrapper.h. `part` is a direct child, or the model for the
// parameters of the root module itself.
template <class M>
class SeparateDistributedDataParallel
    : public internal::DataParallelWrapper<SeparateDistributedDataParallel<M>, M, internal::SeparateModels> {
 public:
  // The module must outlive the wrapper. Options: as DistributedDataParallel; broadcast_buffers is off by
  // default.
  explicit SeparateDistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : SeparateDistributedDataParallel::DataParallelWrapper(module, std::move(options)) {}

  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const {
    return this->models_.callback(part);
  }
  const ReducerStats& stats(const nn::Module& part) const { return callback(part)->stats(); }
};

}  // namespace gradus::dist
