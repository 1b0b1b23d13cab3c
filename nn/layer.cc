// The call operators of Layer and its forward hooks. operator() runs forward through Module::call, which sets the
// current module and adds the module's path to errors. Pre-hooks may replace the input and hooks the result, in
// the order of their registration. Not thread-safe: no hook may be added or removed while another thread calls the
// layer.
#include "gradus/nn/layer.h"

#include <map>

namespace gradus::nn {

struct Layer::Hooks {
  std::map<int, PreHook> before;  // pre-hooks by id
  std::map<int, Hook> after;      // hooks by id
  int next = 0;                   // the id of the next hook of either kind
};

Tensor Layer::operator()(const Tensor& x) {
  return call([&] { return hooks_ ? forward_with_hooks(x) : forward(x); });
}

// With hooks, forward gets an lvalue: hooks may keep the input, so its buffer is not reused.
Tensor Layer::operator()(Tensor&& x) {
  return call([&] { return hooks_ ? forward_with_hooks(x) : forward_temporary(std::move(x)); });
}

// The handle refers to the hooks by a weak pointer, so that it may outlive the layer.
HookHandle Layer::add_pre_hook(PreHook hook) {
  if (!hooks_) hooks_ = std::make_shared<Hooks>();
  const int id = hooks_->next++;
  hooks_->before.emplace(id, std::move(hook));
  return HookHandle([id, hooks = std::weak_ptr(hooks_)] {
    if (const auto h = hooks.lock()) h->before.erase(id);
  });
}

HookHandle Layer::add_hook(Hook hook) {
  if (!hooks_) hooks_ = std::make_shared<Hooks>();
  const int id = hooks_->next++;
  hooks_->after.emplace(id, std::move(hook));
  return HookHandle([id, hooks = std::weak_ptr(hooks_)] {
    if (const auto h = hooks.lock()) h->after.erase(id);
  });
}

bool Layer::has_hooks() const { return hooks_ && !(hooks_->before.empty() && hooks_->after.empty()); }

Tensor Layer::forward_with_hooks(const Tensor& x) {
  // A copy, because a hook may add or remove hooks, which then takes effect from the next call on.
  const Hooks hooks = *hooks_;
  Tensor input = x;
  for (const auto& [id, hook] : hooks.before)
    if (Tensor other = hook(*this, input); other.defined()) input = std::move(other);
  Tensor y = forward(input);
  for (const auto& [id, hook] : hooks.after)
    if (Tensor other = hook(*this, input, y); other.defined()) y = std::move(other);
  return y;
}

}  // namespace gradus::nn
