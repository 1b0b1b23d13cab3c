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

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// PyTorch's options and some of this library. Options that affect communication must be equal on all ranks.
// Options without a comment are those of AllReduceCallbackOptions, or have PyTorch's meaning.
struct DistributedDataParallelOptions {
  // At most one device: inputs are moved to it, and all parameters must be on it. Empty: inputs are not
  // moved, and parameters may be on several devices.
  std::vector<Device> device_ids = {};
  std::optional<Device> output_device = {};  // results are moved to it; default: results are not moved
  int64_t dim = 0;                           // ignored: one device gets the whole batch
  // Broadcasts buffers from the group's first rank after each synchronizing backward. Default: true for
  // DistributedDataParallel, false for SeparateDistributedDataParallel, as in mmengine.
  std::optional<bool> broadcast_buffers = {};
  bool init_sync = true;     // false: the caller makes the initial weights equal, also those of later modules
  Group process_group = {};  // the ranks to average over; default: all ranks (dist::world())
  double bucket_cap_mb = 25;            // MiB of gradients per all-reduce
  bool find_unused_parameters = false;  // ignored: every backward finds its unused parameters
  bool check_reduction = false;         // ignored (deprecated in PyTorch)
  bool gradient_as_bucket_view = false;
  bool static_graph = false;  // every backward reaches the same parameters; a change is a StateError
  CommHook comm_hook = {};
  int check_divergence_every = 0;
  bool check_finite = false;
  bool overlap = true;
  bool rebuild_buckets = false;
};

namespace internal {

// The model of a wrapper, in parts that have a reducer each: one part for DistributedDataParallel; one per
// direct child, and one for the parameters of the root module itself, for SeparateDistributedDataParallel.
//
// attach, and all recordings of attached managers, search the model for new parameters, buffers and children.
// The search is collective if it finds any: ranks compare and broadcast them. Not thread-safe.
class DataParallelModel {
 public:
  // Collective over the group. `separate`: for SeparateDistributedDataParallel.
  // Errors: ValueError for a model without parameters, invalid options, or parameters outside of device_ids
  // or on several types of device; DeviceError for parameters on the meta device in a group of several ranks;
  // MismatchError naming rank and option, or the parameter whose name, shape or dtype differs.
  DataParallelModel(nn::Module& module, DistributedDataParallelOptions options, bool separate);

  // Attaches the parameters of a sub-module to `gm`, and its later parameters whenever a recording opens. The
  // callbacks in `more` get the reduced gradients. `part` must outlive `gm`.
  // Errors: of SeparateDistributedDataParallel, ValueError if `part` is neither the model nor a direct child
  // with parameters; the error lists the valid modules.
  void attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more);
  // The same for all parameters of the model.
  void attach_all(GradManager& gm, std::vector<Callback> more);
  // Return the callbacks of the parts. If separate, they search for new parts as well.
  std::vector<std::shared_ptr<AllReduceCallback>> callbacks() const;
  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const;
  Tensor to_device(const Tensor& x) const;  // an input, on device_ids[0] if given
  Tensor to_output(const Tensor& y) const;  // a result, on output_device if given

 private:
  class State;
  class Watcher;
  std::shared_ptr<State> state_;
};

template <class T> constexpr bool is_tensor = std::is_same_v<std::remove_cvref_t<T>, Tensor>;

// Returns module(args...). Tensor arguments are moved to device_ids[0], a tensor result to output_device.
template <class M, class... Args>
decltype(auto) call(const DataParallelModel& model, M& module, Args&&... args) {
  const auto input = [&model]<class T>(T&& x) -> decltype(auto) {
    if constexpr (is_tensor<T>)
      return model.to_device(x);
    else
      return std::forward<T>(x);
  };
  if constexpr (is_tensor<decltype(module(input(std::forward<Args>(args))...))>)
    return model.to_output(module(input(std::forward<Args>(args))...));
  else
    return module(input(std::forward<Args>(args))...);
}

template <class T>
concept IsCallback = std::is_constructible_v<Callback, T>;
template <IsCallback... C> std::vector<Callback> callbacks_of(C... c) { return {Callback(std::move(c))...}; }

// Loads a state dict. Names may contain "module.", the prefix that wrappers of other frameworks add to the
// names of a model or of its children.
nn::LoadReport load_without_wrappers(nn::Module& module, const nn::StateDict& state, nn::LoadOptions options);

// Wraps a model of type M. `Self` is the derived class (CRTP).
template <class Self, class M> class DataParallelWrapper {
 public:
  // Attaches the model's current and future parameters. The callbacks in `more` get the reduced gradients.
  template <IsCallback... C> void attach(GradManager& gm, C... more) {
    model_.attach_all(gm, callbacks_of(std::move(more)...));
  }
  // Attaches the parameters of one sub-module, for models with several managers. `part` must outlive `gm`.
  template <IsCallback... C> void attach(GradManager& gm, const nn::Module& part, C... more) {
    model_.attach(gm, part, callbacks_of(std::move(more)...));
  }

  M* operator->() { return &module_; }
  const M* operator->() const { return &module_; }
  M& operator*() { return module_; }
  M& module() { return module_; }

  // Calls the model. Tensor arguments are moved to device_ids[0], a tensor result to output_device.
  template <class... Args> decltype(auto) operator()(Args&&... args) {
    return call(model_, module_, std::forward<Args>(args)...);
  }

  // Forward to the model's functions of the same name, as mmengine's runners expect.
  template <class... Args> decltype(auto) train_step(Args&&... args) {
    return module_.train_step(std::forward<Args>(args)...);
  }
  template <class... Args> decltype(auto) val_step(Args&&... args) {
    return module_.val_step(std::forward<Args>(args)...);
  }
  template <class... Args> decltype(auto) test_step(Args&&... args) {
    return module_.test_step(std::forward<Args>(args)...);
  }

  Self& train(bool on = true) { return module_.train(on), static_cast<Self&>(*this); }
  Self& eval() { return train(false); }
  std::vector<Tensor> parameters() const { return module_.parameters(); }
  nn::StateDict state_dict() const { return module_.state_dict(); }
  // Accepts names with or without a wrapper's "module." prefix.
  nn::LoadReport load_state_dict(const nn::StateDict& state, nn::LoadOptions options = {}) {
    return load_without_wrappers(module_, state, options);
  }

  // See AllReduceCallback::no_sync.
  NoSync no_sync() { return NoSync(model_.callbacks()); }
  // See dist::join. Broadcasts the model's buffers with its parameters.
  void join(const std::function<void()>& body, const JoinOptions& options = {},
            const std::vector<Joinable*>& joinables = {}) {
    dist::join(model_.callbacks(), body, options, module_.buffers(), joinables);
  }

 protected:
  DataParallelWrapper(M& module, DistributedDataParallelOptions options, bool separate)
      : module_(module), model_(module, std::move(options), separate) {}

  M& module_;
  DataParallelModel model_;
};

}  // namespace internal

// Most member functions are those of DataParallelWrapper.
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
// Most member functions are those of DataParallelWrapper. `part` is a direct child, or the model for the
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
