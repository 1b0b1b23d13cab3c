// SeparateDistributedDataParallel: data parallel per sub-module, each with a reducer and a group of its own,
// as mmengine's MMSeparateDistributedDataParallel.
//
//   dist::SeparateDistributedDataParallel ddp(gan);     // children gen and disc
//   GradManager gm_d, gm_g;
//   ddp.attach(gm_d, ddp->disc);
//   ddp.attach(gm_g, ddp->gen);
//   auto logs = ddp.train_step(data, optimizers);       // gan's own
//
// Children without parameters need no reducer, until they get some. Parameters of the model's root, which
// mmengine leaves out, have one as well. A parameter that several of them share belongs to the first, the
// root before all.
#pragma once

#include "gradus/distributed/data_parallel/distributed_data_parallel.h"

namespace gradus::dist {

namespace internal {

// Children may come later, and get parameters later: all calls, and recordings of managers that something of
// it is attached to, look for what is new in any part, which is collective when there is something.
class SeparateModels {
 public:
  // Errors: as DistributedDataParallel.
  SeparateModels(nn::Module& module, DistributedDataParallelOptions options);

  // Errors: ValueError when `part` is neither the model nor a direct child with parameters, naming
  // those there are.
  void attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more);
  void attach_all(GradManager& gm, std::vector<Callback> more);
  std::vector<std::shared_ptr<AllReduceCallback>> callbacks() const;
  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const;
  // Of the first part: where inputs and outputs go is the same for all.
  const DataParallelModel& first() const;

 private:
  class State;
  class Watcher;
  std::shared_ptr<State> state_;
};

}  // namespace internal

// Most of what it has is in data_parallel_wrapper.h. `part` is a direct child, or the model itself for the
// root's own parameters.
template <class M>
class SeparateDistributedDataParallel
    : public internal::DataParallelWrapper<SeparateDistributedDataParallel<M>, M, internal::SeparateModels> {
 public:
  // The module must outlive it. Options: as DistributedDataParallel; broadcast_buffers is off by default.
  explicit SeparateDistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : SeparateDistributedDataParallel::DataParallelWrapper(module, std::move(options)) {}

  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const {
    return this->models_.callback(part);
  }
  const ReducerStats& stats(const nn::Module& part) const { return callback(part)->stats(); }
};

}  // namespace gradus::dist
