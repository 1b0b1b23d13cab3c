// Layer: a module that maps one tensor to one tensor. Derived classes override forward; users call
// operator(), which runs hooks and adds the layer's path to errors.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>

#include "gradus/nn/options.h"

namespace gradus::nn {

class Layer;

// Returned by the registration of a hook. remove() removes the hook; the destructor does not.
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

  // Computes the layer's result. Called by operator().
  virtual Tensor forward(const Tensor& x) = 0;

  Tensor operator()(const Tensor& x);
  // The same for a temporary, whose buffer the result may reuse.
  Tensor operator()(Tensor&& x);

  // Registers f(layer, x), called before forward. If f returns a defined Tensor, that tensor replaces x.
  // Hooks run in the order of registration. No thread may add or remove hooks while another one calls the
  // layer.
  template <class F>
    requires std::is_invocable_v<F&, Layer&, const Tensor&>
  HookHandle register_forward_pre_hook(F f) {
    return add_pre_hook(returning_tensor<Layer&, const Tensor&>(std::move(f)));
  }
  // Registers f(layer, x, y), called after forward. If f returns a defined Tensor, that tensor replaces y.
  template <class F>
    requires std::is_invocable_v<F&, Layer&, const Tensor&, const Tensor&>
  HookHandle register_forward_hook(F f) {
    return add_hook(returning_tensor<Layer&, const Tensor&, const Tensor&>(std::move(f)));
  }

  bool has_hooks() const;
  // fuse_next(next, x), called by Sequential: returns next(layer(x)) computed by one fused op, without a call
  // of `next`; nullopt if the two layers cannot be fused, or `next` has hooks.
  virtual std::optional<Tensor> fuse_next(const Layer&, const Tensor&) { return {}; }

 protected:
  // As forward, but may reuse x's buffer. Overridden by layers whose op can reuse a buffer.
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
  Tensor forward_with_hooks(const Tensor& x);

  std::shared_ptr<Hooks> hooks_;
};

// A layer with options: ModuleWith whose base is Layer.
template <class O> class LayerWith : public ModuleWith<O, Layer> {
 public:
  using ModuleWith<O, Layer>::ModuleWith;
};

// A layer that calls the op F with members of its options; N is the name of the class.
template <class O, auto F, OptionName N, auto... kMembers> class OpLayer final : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;
  Tensor forward(const Tensor& x) override { return F(x, this->options().*kMembers...); }
  std::string type_name() const override { return N.name; }
};

}  // namespace gradus::nn
