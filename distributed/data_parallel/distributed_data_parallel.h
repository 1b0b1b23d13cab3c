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

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// PyTorch's options, by their names. Ranks must agree on all that concern communication.
struct DistributedDataParallelOptions {
  // At most one: inputs go there, and parameters must be there. Empty: nothing is moved, and parameters may
  // be on several devices.
  std::vector<Device> device_ids = {};
  std::optional<Device> output_device = {};  // where a result goes; default: where it is
  int64_t dim = 0;                           // accepted; one device takes the whole batch
  // Buffers become those of the group's first rank. Default: yes; per sub-module no, as in mmengine.
  std::optional<bool> broadcast_buffers = {};
  bool init_sync = true;  // false: the caller makes weights equal, also those that come later
  Group process_group = {};
  double bucket_cap_mb = 25;
  bool find_unused_parameters = false;  // accepted; every backward knows what it reaches, on every rank
  bool check_reduction = false;         // accepted (deprecated in PyTorch); every backward ends complete
  bool gradient_as_bucket_view = false;
  bool static_graph = false;  // ranks reach the same parameters every time; a change is a StateError
  CommHook comm_hook = {};
  int check_divergence_every = 0;
  bool check_finite = false;
  bool overlap = true;
};

namespace internal {

// Names and tensors as they are at the moment of the call: a model may grow.
using NamedTensors = std::function<nn::StateDict()>;

// A callback that hears of recordings alone; gradients pass.
class RecordingWatcher : public GradCallback, public std::enable_shared_from_this<RecordingWatcher> {
 public:
  void recording_opened(GradManager& gm) override = 0;
  void begin(const std::vector<Tensor>&, const std::vector<bool>&) override {}
  std::optional<Tensor> ready(const Tensor&, const Tensor& grad) override { return grad; }
  std::vector<Delivery> finish() override { return {}; }
};

// What does not depend on the model's type: the parameters and buffers of a model, or of a part of one, that
// have a reducer together.
class DataParallelModel {
 public:
  // Collective over the group.
  // Errors: ValueError for a model without parameters, or options that do not fit; MismatchError naming the
  // parameter whose name, shape or dtype differs between ranks, and the rank. `owner` is whose parameters
  // they are, for messages.
  DataParallelModel(std::string owner, NamedTensors parameters, NamedTensors buffers,
                    DistributedDataParallelOptions options);
  // For another wrapper, under whose name ranks compare the call.
  DataParallelModel(std::string owner, NamedTensors parameters, NamedTensors buffers,
                    DistributedDataParallelOptions options, Op maker);

  // Attaches what `chosen` names, some of the parameters, and what it names later, as long as the watcher
  // lives: with the manager and one of them. Collective when the model has grown.
  std::weak_ptr<RecordingWatcher> attach(GradManager& gm, NamedTensors chosen, std::vector<Callback> more);
  // Makes what the model got since the last time the same on all ranks; attach, and recordings of managers
  // that it is attached to, do so by themselves. Collective when there is something.
  void take_in_new();
  const std::shared_ptr<AllReduceCallback>& callback() const;
  Tensor to_device(const Tensor& x) const;  // an input
  Tensor to_output(const Tensor& y) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

// "gen", or the type of what has no name.
inline std::string owner_name(const nn::Module& module) {
  return module.name().empty() ? module.type_name() : module.name();
}

template <class T> constexpr bool is_tensor = std::is_same_v<std::remove_cvref_t<T>, Tensor>;

// module(args...), tensors among the arguments and a tensor result moved to where they belong.
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

// The state under the names that `module` has: wrappers of other frameworks put "module." in front of a
// model's names or of its children's.
nn::StateDict without_wrappers(const nn::StateDict& state, const nn::Module& module);

}  // namespace internal

template <class M> class DistributedDataParallel {
 public:
  // The module must outlive it. Collective over the group.
  explicit DistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : module_(module),
        model_(
            internal::owner_name(module), [&module] { return module.named_parameters(); },
            [&module] { return module.named_buffers(); }, std::move(options)) {}

  // Attaches the model's parameters. `more`: callbacks that get the reduced gradients.
  template <internal::IsCallback... C> void attach(GradManager& gm, C... more) {
    model_.attach(
        gm, [&m = module_] { return m.named_parameters(); }, internal::callbacks_of(std::move(more)...));
  }
  // Attaches those of a part of the model: for several managers. The part must live as long as they do.
  template <internal::IsCallback... C> void attach(GradManager& gm, const nn::Module& part, C... more) {
    model_.attach(
        gm, [&part] { return part.named_parameters(); }, internal::callbacks_of(std::move(more)...));
  }

  M* operator->() { return &module_; }
  const M* operator->() const { return &module_; }
  M& operator*() { return module_; }
  M& module() { return module_; }

  // Calls the model: tensors go to device_ids[0], a tensor result to output_device.
  template <class... Args> decltype(auto) operator()(Args&&... args) {
    return internal::call(model_, module_, std::forward<Args>(args)...);
  }

  // The model's own, as runners call them: model.train_step(data, optimizers).
  template <class... Args> decltype(auto) train_step(Args&&... args) {
    return module_.train_step(std::forward<Args>(args)...);
  }
  template <class... Args> decltype(auto) val_step(Args&&... args) {
    return module_.val_step(std::forward<Args>(args)...);
  }
  template <class... Args> decltype(auto) test_step(Args&&... args) {
    return module_.test_step(std::forward<Args>(args)...);
  }

  DistributedDataParallel& train(bool on = true) { return module_.train(on), *this; }
  DistributedDataParallel& eval() { return train(false); }
  std::vector<Tensor> parameters() const { return module_.parameters(); }
  nn::StateDict state_dict() const { return module_.state_dict(); }
  // Takes names with or without a wrapper's "module." in them.
  nn::LoadReport load_state_dict(const nn::StateDict& state, nn::LoadOptions options = {}) {
    return module_.load_state_dict(internal::without_wrappers(state, module_), options);
  }

  // Gradient accumulation: see AllReduceCallback::no_sync.
  NoSync no_sync() { return callback()->no_sync(); }
  // Uneven inputs: see dist::join.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    dist::join({callback()}, body, options, module_.buffers());
  }
  const std::shared_ptr<AllReduceCallback>& callback() const { return model_.callback(); }
  const ReducerStats& stats() const { return callback()->stats(); }

 private:
  M& module_;
  internal::DataParallelModel model_;
};

}  // namespace gradus::dist
