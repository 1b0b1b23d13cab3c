// DistributedDataParallel: a model whose gradients are those of all ranks together. Any model: also one with several
// losses (GANs), whose ranks use different parameters, or that grows.
//
//   dist::DistributedDataParallel ddp(net);                 // verifies shapes, makes all ranks' weights rank 0's
//   GradManager gm;  ddp.attach(gm);
//   { auto recording = gm.record(); gm.backward(loss(ddp(x), y)); opt.step().clear_grad(); }
//
//   { auto recording = gm.record({.only = ddp->disc.parameters()}); ... }      // a GAN under one manager
//
// The model stays the user's: ddp->disc is its member, names have no prefix, state_dict() is the model's own.
// Parameters that the model gets later (a network that grows) are found when the next recording opens: ranks agree
// on them, and take over rank 0's values. Buffers (running statistics) become rank 0's after every backward that
// synchronises.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/allreduce_callback.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// PyTorch's options, by their names.
struct DistributedDataParallelOptions {
  // At most one: inputs go there, and parameters must be there. Empty: nothing is moved.
  std::vector<Device> device_ids = {};
  std::optional<Device> output_device = {};  // where results go; default: where they are
  int64_t dim = 0;                           // accepted; one device takes the whole batch
  bool broadcast_buffers = true;
  bool init_sync = true;  // false: the caller has made the weights equal
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

// What does not depend on the model's type.
class DataParallelModel {
 public:
  // Collective over the group. Errors: ValueError for a model without parameters, or options that do not fit;
  // MismatchError naming the parameter whose shape, dtype or name differs between ranks.
  DataParallelModel(nn::Module& module, DistributedDataParallelOptions options);
  ~DataParallelModel();

  void attach(GradManager& gm, std::vector<Callback> more);
  const std::shared_ptr<AllReduceCallback>& callback() const { return callback_; }
  Tensor to_device(const Tensor& x) const;  // an input
  Tensor to_output(const Tensor& y) const;

 private:
  nn::Module& module_;
  DistributedDataParallelOptions options_;
  std::shared_ptr<AllReduceCallback> callback_;
};

template <class T>
constexpr bool is_tensor = std::is_same_v<std::remove_cvref_t<T>, Tensor>;

}  // namespace internal

template <class M>
class DistributedDataParallel {
 public:
  // The module must outlive it. Collective over the group.
  explicit DistributedDataParallel(M& module, DistributedDataParallelOptions options = {})
      : module_(module), model_(module, std::move(options)) {}

  // Attaches the model's parameters. `more`: callbacks that get the reduced gradients.
  template <class... C>
  void attach(GradManager& gm, C... more) {
    model_.attach(gm, std::vector<Callback>{Callback(std::move(more))...});
  }

  M* operator->() { return &module_; }
  const M* operator->() const { return &module_; }
  M& operator*() { return module_; }
  M& module() { return module_; }

  // Calls the model: tensors go to device_ids[0], a tensor result to output_device.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return output(module_(input(std::forward<Args>(args))...));
  }

  // The model's own, as runners call them: model.train_step(data, optimizers).
  template <class... Args>
  decltype(auto) train_step(Args&&... args) { return module_.train_step(std::forward<Args>(args)...); }
  template <class... Args>
  decltype(auto) val_step(Args&&... args) { return module_.val_step(std::forward<Args>(args)...); }
  template <class... Args>
  decltype(auto) test_step(Args&&... args) { return module_.test_step(std::forward<Args>(args)...); }

  DistributedDataParallel& train(bool on = true) { return module_.train(on), *this; }
  DistributedDataParallel& eval() { return train(false); }
  std::vector<Tensor> parameters() const { return module_.parameters(); }
  nn::StateDict state_dict() const { return module_.state_dict(); }
  // Takes names with or without PyTorch's "module." before them.
  nn::LoadReport load_state_dict(const nn::StateDict& state, nn::LoadOptions options = {});

  // Gradient accumulation: see AllReduceCallback::no_sync.
  NoSync no_sync() { return callback()->no_sync(); }
  // Uneven inputs: see dist::join.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    dist::join({callback()}, body, options, module_.buffers());
  }
  const std::shared_ptr<AllReduceCallback>& callback() const { return model_.callback(); }
  const ReducerStats& stats() const { return callback()->stats(); }

 private:
  template <class T>
  decltype(auto) input(T&& x) const {
    if constexpr (internal::is_tensor<T>)
      return model_.to_device(x);
    else
      return std::forward<T>(x);
  }
  template <class T>
  decltype(auto) output(T&& y) const {
    if constexpr (internal::is_tensor<T>)
      return model_.to_output(y);
    else
      return std::forward<T>(y);
  }

  M& module_;
  internal::DataParallelModel model_;
};

// The names without a wrapper's "module." in front.
nn::StateDict without_prefix(const nn::StateDict& state, const std::string& prefix = "module.");

template <class M>
nn::LoadReport DistributedDataParallel<M>::load_state_dict(const nn::StateDict& state, nn::LoadOptions options) {
  return module_.load_state_dict(without_prefix(state), options);
}

}  // namespace gradus::dist
