// SeparateDistributedDataParallel: data parallel per sub-module, each with a reducer and a group of its own, as
// mmengine's MMSeparateDistributedDataParallel.
//
//   dist::SeparateDistributedDataParallel ddp(gan);     // children gen and disc
//   GradManager gm_d, gm_g;
//   ddp.attach(gm_d, ddp->disc);
//   ddp.attach(gm_g, ddp->gen);
//   auto logs = ddp.train_step(data, optimizers);       // gan's own
//
// Children without parameters need no reducer. Parameters of the model's root, which mmengine leaves out, have one
// as well.
#pragma once

#include "gradus/distributed/distributed_data_parallel.h"

namespace gradus::dist {

namespace internal {

class SeparateModels {
 public:
  SeparateModels(nn::Module& module, const DistributedDataParallelOptions& options);

  // Errors: ValueError when `part` is no direct child with parameters, naming those there are.
  void attach(GradManager& gm, const nn::Module& part, const std::vector<Callback>& more);
  void attach_all(GradManager& gm, const std::vector<Callback>& more);
  std::vector<std::shared_ptr<AllReduceCallback>> callbacks() const;
  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const;

 private:
  struct Part {
    nn::Module* module;  // a child, or the root for its own parameters
    std::unique_ptr<DataParallelModel> model;
  };
  nn::Module& module_;
  std::vector<Part> parts_;
};

}  // namespace internal

template <class M>
class SeparateDistributedDataParallel {
 public:
  // Options: as DistributedDataParallel, with mmengine's default of broadcast_buffers.
  explicit SeparateDistributedDataParallel(M& module,
                                           DistributedDataParallelOptions options = {.broadcast_buffers = false})
      : module_(module), models_(module, options) {}

  // Attaches one child's parameters, or the root's own (`part` is the model itself).
  void attach(GradManager& gm, const nn::Module& part) { models_.attach(gm, part, {}); }
  // Attaches all of them to one manager.
  void attach(GradManager& gm) { models_.attach_all(gm, {}); }

  M* operator->() { return &module_; }
  M& operator*() { return module_; }
  M& module() { return module_; }

  template <class... Args>
  decltype(auto) operator()(Args&&... args) { return module_(std::forward<Args>(args)...); }
  template <class... Args>
  decltype(auto) train_step(Args&&... args) { return module_.train_step(std::forward<Args>(args)...); }
  template <class... Args>
  decltype(auto) val_step(Args&&... args) { return module_.val_step(std::forward<Args>(args)...); }
  template <class... Args>
  decltype(auto) test_step(Args&&... args) { return module_.test_step(std::forward<Args>(args)...); }

  SeparateDistributedDataParallel& train(bool on = true) { return module_.train(on), *this; }
  SeparateDistributedDataParallel& eval() { return train(false); }
  nn::StateDict state_dict() const { return module_.state_dict(); }
  nn::LoadReport load_state_dict(const nn::StateDict& state, nn::LoadOptions options = {}) {
    return module_.load_state_dict(without_prefix(state), options);
  }

  NoSync no_sync();  // of all parts
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    dist::join(models_.callbacks(), body, options, module_.buffers());
  }
  const ReducerStats& stats(const nn::Module& part) const { return models_.callback(part)->stats(); }

 private:
  M& module_;
  internal::SeparateModels models_;
};

template <class M>
NoSync SeparateDistributedDataParallel<M>::no_sync() {
  std::vector<std::shared_ptr<internal::Reducer>> reducers;
  for (const auto& callback : models_.callbacks()) reducers.push_back(callback->reducer());
  return NoSync(std::move(reducers));
}

}  // namespace gradus::dist
