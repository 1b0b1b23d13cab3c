// Layer: a module that maps one tensor to one. Users override forward, but call the layer itself: the call
// runs hooks and adds the layer's name to errors.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>

#include "gradus/nn/options.h"

namespace gradus::nn {

class Layer;

// Removes its hook on remove(); dropping the handle leaves the hook in place.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  void remove() {
    if (remove_) std::exchange(remove_, nullptr)();
  }

 private:
  std::function<void()> remove_;
};

class Layer : public Module {
 public:
  using Module::Module;
  Layer() = default;

  // Computes the layer's result. Call the layer, not this function.
  virtual Tensor forward(const Tensor& x) = 0;

  Tensor operator()(const Tensor& x) {
    return call([&] { return hooks_ ? with_hooks(x) : forward(x); });
  }
  // The same for a temporary; its buffer may become the result.
  Tensor operator()(Tensor&& x) {
    return call([&] { return hooks_ ? with_hooks(x) : forward_temporary(std::move(x)); });
  }

  // Registers f, to be called as f(layer, x) before forward. If f returns a defined Tensor, it replaces x.
  template <class F>
    requires std::is_invocable_v<F&, Layer&, const Tensor&>
  HookHandle register_forward_pre_hook(F f) {
    return add_pre_hook(returning_tensor<Layer&, const Tensor&>(std::move(f)));
  }
  // Registers f, to be called as f(layer, x, y) after forward. If f returns a defined Tensor, it replaces y.
  template <class F>
    requires std::is_invocable_v<F&, Layer&, const Tensor&, const Tensor&>
  HookHandle register_forward_hook(F f) {
    return add_hook(returning_tensor<Layer&, const Tensor&, const Tensor&>(std::move(f)));
  }

  bool has_hooks() const;
  // Returns next(layer(x)) if the layer takes over the next one, else nothing. next() itself is not called.
  virtual std::optional<Tensor> with_next(const Layer&, const Tensor&) { return {}; }

 protected:
  // As forward, but x's buffer may be reused. Layers override it when their op can reuse a buffer.
  virtual Tensor forward_temporary(Tensor&& x) { return forward(x); }

 private:
  using PreHook = std::function<Tensor(Layer&, const Tensor&)>;
  using Hook = std::function<Tensor(Layer&, const Tensor&, const Tensor&)>;
  struct Hooks;

  template <class... Args, class F> static std::function<Tensor(Args...)> returning_tensor(F f) {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, Args...>>)
      return [f = std::move(f)](Args... args) mutable { return f(args...), Tensor(); };
    else
      return f;
  }
  HookHandle add_pre_hook(PreHook hook);
  HookHandle add_hook(Hook hook);
  Tensor with_hooks(const Tensor& x);

  std::shared_ptr<Hooks> hooks_;
};

// A layer with options: as ModuleWith.
template <class O> class LayerWith : public ModuleWith<O, Layer> {
 public:
  using ModuleWith<O, Layer>::ModuleWith;
};

}  // namespace gradus::nn
