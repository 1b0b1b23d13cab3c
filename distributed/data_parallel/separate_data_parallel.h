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

template <class M> class SeparateDistributedDataParallel {
 public:
  // The module must outlive it. Options: as DistributedDataParallel; broadcast_buffers is off by default.
  explicit SeparateDistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : module_(module), models_(module, std::move(options)) {}

  // Attaches one child's parameters, or the root's own (`part` is the model itself).
  template <internal::IsCallback... C> void attach(GradManager& gm, const nn::Module& part, C... more) {
    models_.attach(gm, part, internal::callbacks_of(std::move(more)...));
  }
  // Attaches all of them to one manager, and those that come later.
  template <internal::IsCallback... C> void attach(GradManager& gm, C... more) {
    models_.attach_all(gm, internal::callbacks_of(std::move(more)...));
  }

  M* operator->() { return &module_; }
  const M* operator->() const { return &module_; }
  M& operator*() { return module_; }
  M& module() { return module_; }

  // As DistributedDataParallel's.
  template <class... Args> decltype(auto) operator()(Args&&... args) {
    return internal::call(models_.first(), module_, std::forward<Args>(args)...);
  }
  template <class... Args> decltype(auto) train_step(Args&&... args) {
    return module_.train_step(std::forward<Args>(args)...);
  }
  template <class... Args> decltype(auto) val_step(Args&&... args) {
    return module_.val_step(std::forward<Args>(args)...);
  }
  template <class... Args> decltype(auto) test_step(Args&&... args) {
    return module_.test_step(std::forward<Args>(args)...);
  }

  SeparateDistributedDataParallel& train(bool on = true) { return module_.train(on), *this; }
  SeparateDistributedDataParallel& eval() { return train(false); }
  std::vector<Tensor> parameters() const { return module_.parameters(); }
  nn::StateDict state_dict() const { return module_.state_dict(); }
  // Takes names with or without wrappers' "module." in them.
  nn::LoadReport load_state_dict(const nn::StateDict& state, nn::LoadOptions options = {}) {
    return module_.load_state_dict(internal::without_wrappers(state, module_), options);
  }

  // Of all parts: see AllReduceCallback::no_sync.
  NoSync no_sync() { return NoSync(models_.callbacks()); }
  // Uneven inputs: see dist::join.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    dist::join(models_.callbacks(), body, options, module_.buffers());
  }
  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const {
    return models_.callback(part);
  }
  const ReducerStats& stats(const nn::Module& part) const { return callback(part)->stats(); }

 private:
  M& module_;
  internal::SeparateModels models_;
};

}  // namespace gradus::dist
