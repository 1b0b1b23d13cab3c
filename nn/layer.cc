// The forward hooks of Layer.
#include "gradus/nn/layer.h"

#include <map>

namespace gradus::nn {

struct Layer::Hooks {
  std::map<int, PreHook> before;
  std::map<int, Hook> after;
  int next = 0;
};

Tensor Layer::operator()(const Tensor& x) {
  return call([&] { return hooks_ ? with_hooks(x) : forward(x); });
}

Tensor Layer::operator()(Tensor&& x) {
  return call([&] { return hooks_ ? with_hooks(x) : forward_temporary(std::move(x)); });
}

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

Tensor Layer::with_hooks(const Tensor& x) {
  // Copied, because a hook may remove itself.
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
