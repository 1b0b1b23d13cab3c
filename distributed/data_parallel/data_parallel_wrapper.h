// DataParallelWrapper: the base class of DistributedDataParallel and SeparateDistributedDataParallel.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gradus/distributed/data_parallel/data_parallel_model.h"

namespace gradus::dist::internal {

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
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    dist::join(model_.callbacks(), body, options, module_.buffers());
  }

 protected:
  DataParallelWrapper(M& module, DistributedDataParallelOptions options, bool separate)
      : module_(module), model_(module, std::move(options), separate) {}

  M& module_;
  DataParallelModel model_;
};

}  // namespace gradus::dist::internal
