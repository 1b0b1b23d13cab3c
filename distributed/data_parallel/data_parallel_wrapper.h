// DataParallelWrapper: what DistributedDataParallel and SeparateDistributedDataParallel have in common.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gradus/distributed/data_parallel/data_parallel_model.h"

namespace gradus::dist::internal {

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

// Loads a state whose names may have what wrappers of other frameworks put in front of a model's names or of
// its children's: "module.".
nn::LoadReport load_without_wrappers(nn::Module& module, const nn::StateDict& state, nn::LoadOptions options);

// A model of type M. `Self` is the wrapper, `Models` what it has of reducers.
template <class Self, class M, class Models> class DataParallelWrapper {
 public:
  // Attaches the model's parameters, also later ones. `more`: callbacks that get the reduced gradients.
  template <IsCallback... C> void attach(GradManager& gm, C... more) {
    models_.attach_all(gm, callbacks_of(std::move(more)...));
  }
  // Attaches those of a part of the model: for several managers. The part must live as long as they do.
  template <IsCallback... C> void attach(GradManager& gm, const nn::Module& part, C... more) {
    models_.attach(gm, part, callbacks_of(std::move(more)...));
  }

  M* operator->() { return &module_; }
  const M* operator->() const { return &module_; }
  M& operator*() { return module_; }
  M& module() { return module_; }

  // Calls the model: tensors go to device_ids[0], a tensor result to output_device.
  template <class... Args> decltype(auto) operator()(Args&&... args) {
    return call(models_.first(), module_, std::forward<Args>(args)...);
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

  Self& train(bool on = true) { return module_.train(on), static_cast<Self&>(*this); }
  Self& eval() { return train(false); }
  std::vector<Tensor> parameters() const { return module_.parameters(); }
  nn::StateDict state_dict() const { return module_.state_dict(); }
  // Takes names with or without a wrapper's "module." in them.
  nn::LoadReport load_state_dict(const nn::StateDict& state, nn::LoadOptions options = {}) {
    return load_without_wrappers(module_, state, options);
  }

  // Gradient accumulation: see AllReduceCallback::no_sync.
  NoSync no_sync() { return NoSync(models_.callbacks()); }
  // Uneven inputs: see dist::join.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    dist::join(models_.callbacks(), body, options, module_.buffers());
  }

 protected:
  DataParallelWrapper(M& module, DistributedDataParallelOptions options)
      : module_(module), models_(module, std::move(options)) {}

  M& module_;
  Models models_;
};

}  // namespace gradus::dist::internal
