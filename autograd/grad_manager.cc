#include "gradus/autograd/grad_manager.h"

#include <algorithm>

#include "gradus/autograd/engine.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/record.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/elementwise.h"

namespace gradus {
namespace autograd {

// An attached tensor and what is to happen to its gradient.
struct Attached {
  Ref<Leaf> leaf;
  std::vector<Callback> callbacks;
};

struct ManagerState {
  std::vector<Attached> attached;
  std::vector<std::weak_ptr<OpenRecording>> open;  // innermost last

  void forget_dead() {
    std::erase_if(attached, [](const Attached& a) { return !a.leaf->tensor().defined(); });
    std::erase_if(open, [](const auto& r) { return r.expired(); });
  }
};

struct OpenRecording {
  std::shared_ptr<ManagerState> manager;
  Ref<RecordingState> state;
  bool narrowed = false;  // recorded with `only`

  ~OpenRecording() {
    const bool unused = state && !state->finished();
    finish();
    if (unused)
      for (const auto& object : objects()) object->abandon();
  }

  void finish(std::exception_ptr error = {}) {
    if (!state) return;
    close_recording(state.get());
    state->finish(error);
  }

  std::vector<std::shared_ptr<GradCallback>> objects() const {
    std::vector<std::shared_ptr<GradCallback>> found;
    for (const Attached& a : manager->attached)
      for (const Callback& c : a.callbacks)
        if (c.object && std::find(found.begin(), found.end(), c.object) == found.end()) found.push_back(c.object);
    return found;
  }

  // Ends the recording, however it goes.
  void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& dys);

 private:
  void compute(const std::vector<Tensor>& roots, const std::vector<Tensor>& dys);
};

namespace {

// One backward's gradients on their way through the callbacks.
class Deliveries {
 public:
  Deliveries(std::vector<Attached> attached, std::vector<std::shared_ptr<GradCallback>> objects)
      : attached_(std::move(attached)), objects_(std::move(objects)), results_(attached_.size()) {
    for (const Attached& a : attached_) params_.push_back(a.leaf->tensor());
  }

  void begin(const std::vector<bool>& reached) {
    for (const auto& object : objects_) {
      std::vector<Tensor> params;
      std::vector<bool> flags;
      for (size_t t = 0; t < attached_.size(); ++t) {
        if (!position(t, object.get())) continue;
        params.push_back(params_[t]);
        flags.push_back(reached[t]);
      }
      object->begin(params, flags);
    }
  }

  void deliver(size_t t, Tensor grad) { advance(t, 0, std::move(grad)); }

  void finish() {
    for (const auto& object : objects_)
      for (GradCallback::Delivery& d : object->finish()) {
        const auto t = std::find_if(params_.begin(), params_.end(), [&](const Tensor& p) { return p.is_same(d.param); });
        if (t == params_.end()) throw StateError("backward", "a callback delivered a gradient for a tensor that is not attached");
        const size_t at = t - params_.begin();
        advance(at, position(at, object.get()).value_or(-1) + 1, std::move(d.grad));
      }
  }

  void store() {
    for (size_t t = 0; t < attached_.size(); ++t)
      if (results_[t].defined()) store(*attached_[t].leaf, params_[t], std::move(results_[t]));
  }

  void abandon() {
    for (const auto& object : objects_) object->abandon();
  }

 private:
  std::optional<size_t> position(size_t t, const GradCallback* object) const {
    const auto& callbacks = attached_[t].callbacks;
    for (size_t k = 0; k < callbacks.size(); ++k)
      if (callbacks[k].object.get() == object) return k;
    return std::nullopt;
  }

  // Passes a gradient through the callbacks from the k-th on, until one holds it back.
  void advance(size_t t, size_t k, Tensor grad) {
    const auto& callbacks = attached_[t].callbacks;
    for (; k < callbacks.size(); ++k) {
      if (callbacks[k].object) {
        std::optional<Tensor> next = callbacks[k].object->ready(params_[t], grad);
        if (!next) return;
        grad = std::move(*next);
      } else if (grad.defined()) {
        grad = callbacks[k].function(params_[t], grad);
      }
    }
    results_[t] = std::move(grad);
  }

  static void store(Leaf& leaf, const Tensor& param, Tensor grad) {
    if (!(grad.shape() == param.shape()) || grad.dtype() != param.dtype())
      throw ShapeError("backward", "a callback returned a gradient ", describe(grad), " for ", describe(param));
    if (param.is_row_major()) grad = contiguous(grad);
    if (!leaf.grad.defined()) {
      leaf.grad = grad.sole_owner() ? std::move(grad) : clone(grad);  // a gradient is nobody else's tensor
    } else if (leaf.grad.sole_owner() && !is_tracked(leaf.grad) && !is_tracked(grad)) {
      raw::add_(leaf.grad, grad);
    } else {
      leaf.grad = add(leaf.grad, grad);
    }
  }

  std::vector<Attached> attached_;
  std::vector<std::shared_ptr<GradCallback>> objects_;
  std::vector<Tensor> params_;  // the attached tensors, kept alive during the backward
  std::vector<Tensor> results_;
};

std::vector<Tensor> with_default_dys(const std::vector<Tensor>& roots, std::vector<Tensor> dys) {
  if (!dys.empty() && dys.size() != roots.size())
    throw ValueError("backward", "needs one dy per root: ", roots.size(), " roots, ", dys.size(), " dys");
  const bool given = !dys.empty();
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    if (!is_floating(root.dtype())) throw DTypeError("backward", "the root must be floating point, given ", describe(root));
    if (given) {
      if (!(dys[i].shape() == root.shape()))
        throw ShapeError("backward", "dy must have the root's shape: dy ", describe(dys[i]), ", root ", describe(root));
      continue;
    }
    if (root.numel() != 1)
      throw ShapeError("backward", "the loss must have one element (or pass its dy), given ", describe(root));
    dys.push_back(empty(root.shape(), {root.dtype(), root.device()}));
    raw::fill_(dys.back(), 1.0);
  }
  return dys;
}

}  // namespace

void OpenRecording::backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& dys) {
  if (state->finished())
    throw StateError("backward", "no computation history: this recording was already used by backward or released; ",
                     "call record() and compute the loss again");
  try {
    compute(roots, dys);
  } catch (...) {
    finish(std::current_exception());
    throw;
  }
  finish();
}

void OpenRecording::compute(const std::vector<Tensor>& roots, const std::vector<Tensor>& given_dys) {
  std::vector<Tensor> dys = with_default_dys(roots, given_dys);
  const bool reaches = std::any_of(roots.begin(), roots.end(), [&](const Tensor& r) {
    return r.ref()->slot && state->follows(r.ref()->slot.get());
  });
  if (!roots.empty() && !reaches)
    throw StateError("backward", "the loss depends on no attached tensor: ", describe(roots[0]), ", ", state->leaves().size(),
                     " tensors attached", narrowed ? " (narrowed by `only`)" : "",
                     "; was it computed outside of record(), or detached? autograd::explain(loss) tells");

  manager->forget_dead();
  Deliveries deliveries(manager->attached, objects());
  BackwardPass pass{*state, roots, std::move(dys), {}, false, {}, {}};
  for (const Attached& a : manager->attached)
    pass.targets.push_back(state->has_leaf(a.leaf.get()) ? Edge{a.leaf, 0} : Edge{});
  pass.begin = [&](const std::vector<bool>& reached) { deliveries.begin(reached); };
  pass.deliver = [&](size_t t, Tensor grad) { deliveries.deliver(t, std::move(grad)); };
  const RecordingsScope scope(recordings_that_see(*state));
  try {
    run(pass);
    deliveries.finish();
  } catch (...) {
    deliveries.abandon();
    throw;
  }
  deliveries.store();
}

}  // namespace autograd

using autograd::OpenRecording;

Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;
Recording::~Recording() = default;

namespace {
OpenRecording& checked(const std::shared_ptr<OpenRecording>& open, const char* op) {
  if (!open) throw StateError(op, "this Recording is empty (default-made or moved from)");
  return *open;
}
}  // namespace

Recording& Recording::pause() & {
  autograd::close_recording(checked(open_, "pause").state.get());
  return *this;
}

Recording&& Recording::pause() && {
  pause();
  return std::move(*this);
}

void Recording::resume() {
  const OpenRecording& open = checked(open_, "resume");
  if (open.state->finished()) throw StateError("resume", "this recording has ended; call record()");
  autograd::close_recording(open.state.get());  // resuming twice is fine
  autograd::open_recording(open.state);
}

void Recording::backward(TensorList roots, TensorList dys) { checked(open_, "backward").backward(roots.get(), dys.get()); }

void Recording::release() {
  if (open_) open_->finish();
}

bool Recording::is_open() const { return open_ && !open_->state->finished(); }

GradManager::GradManager() : state_(std::make_shared<autograd::ManagerState>()) {}

const std::shared_ptr<autograd::ManagerState>& GradManager::state(const char* op) const {
  if (!state_) throw StateError(op, "this GradManager was moved from");
  return state_;
}

GradManager& GradManager::attach(TensorList tensors, std::vector<Callback> callbacks) {
  state("attach")->forget_dead();
  for (const Tensor& x : tensors.get()) {
    const Ref<autograd::Leaf> leaf = autograd::leaf_of(x);
    auto& attached = state_->attached;
    auto it = std::find_if(attached.begin(), attached.end(), [&](const auto& a) { return a.leaf == leaf; });
    if (it == attached.end()) it = attached.insert(it, {leaf, {}});
    it->callbacks.insert(it->callbacks.end(), callbacks.begin(), callbacks.end());
    for (const auto& weak : state_->open)
      if (auto open = weak.lock(); open && !open->state->finished() && !open->narrowed) open->state->add_leaf(leaf);
  }
  return *this;
}

std::vector<Tensor> GradManager::attached_tensors() const {
  std::vector<Tensor> alive;
  for (const auto& a : state("attached_tensors")->attached)
    if (Tensor x = a.leaf->tensor(); x.defined()) alive.push_back(std::move(x));
  return alive;
}

namespace {

Ref<autograd::RecordingState> state_for(autograd::ManagerState& manager, const TensorList& only, uint64_t level) {
  manager.forget_dead();
  std::vector<Ref<AutogradSlot>> leaves;
  for (const auto& a : manager.attached) leaves.push_back(a.leaf);
  if (!only.empty()) {
    std::vector<Ref<AutogradSlot>> chosen;
    for (const Tensor& x : only.get()) {
      const Ref<AutogradSlot>& slot = x.ref()->slot;
      if (!slot || std::find(leaves.begin(), leaves.end(), slot) == leaves.end())
        throw StateError("record", "`only` names a tensor that is not attached: ", describe(x));
      chosen.push_back(slot);
    }
    leaves = std::move(chosen);
  }
  return make_ref<autograd::RecordingState>(leaves, level);
}

}  // namespace

Recording GradManager::record(RecordOptions options) {
  auto open = std::make_shared<OpenRecording>();
  open->manager = state("record");
  open->state = state_for(*state_, options.only, 0);
  open->narrowed = !options.only.empty();
  state_->open.push_back(open);
  autograd::open_recording(open->state);
  return Recording(std::move(open));
}

void GradManager::backward(TensorList roots, TensorList dys) {
  state("backward");
  for (auto it = state_->open.rbegin(); it != state_->open.rend(); ++it)
    if (auto open = it->lock(); open && !open->state->finished()) return open->backward(roots.get(), dys.get());
  throw StateError("backward", "no computation history: call record() before the forward; a recording serves one backward");
}

void GradManager::release() {
  state("release");
  for (auto it = state_->open.rbegin(); it != state_->open.rend(); ++it)
    if (auto open = it->lock(); open && !open->state->finished()) return open->finish();
}

std::vector<Recording> GradManagerGroup::record() {
  std::vector<Recording> recordings;
  uint64_t level = 0;
  for (GradManager* gm : managers_) {
    auto open = std::make_shared<OpenRecording>();
    open->manager = gm->state("record");
    open->state = state_for(*gm->state_, {}, level);
    level = open->state->level();
    gm->state_->open.push_back(open);
    autograd::open_recording(open->state);
    recordings.push_back(Recording(std::move(open)));
  }
  return recordings;
}

}  // namespace gradus
