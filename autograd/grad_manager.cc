// GradManager and Recording (a gradient tape). A manager has weak references to its attached tensors, each
// with an ordered list of callbacks. A recording follows the ops on these tensors, its leaves. backward runs
// the engine (engine.h) from the roots, and passes each leaf's gradient through the leaf's callbacks. After
// the pass the results are assigned or added to grad(). A recording serves one backward: afterward, or on an
// error, it is finished.
#include "gradus/autograd/grad_manager.h"

#include <algorithm>
#include <optional>

#include "gradus/autograd/engine.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/leaf_guard.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace autograd {

// An attached tensor and the callbacks for its gradient, in the order of calls.
struct Attached {
  Ref<Leaf> leaf;
  std::vector<Callback> callbacks;
};

struct ManagerState {
  std::vector<Attached> attached;
  std::vector<RecordingState*> open;  // those with a Recording, innermost last
  uint64_t attachments = 0;           // calls of attach outside of captures

  // Returns a gradient of ones for a root, cached for the next backward on this stream. A backward overwrites
  // only buffers of which it is the sole owner. If a callback has written into the cached tensor, a new one
  // is made.
  Tensor one_like(const Tensor& root) {
    const Stream stream = current_stream(root.device());
    if (!one_.defined() || one_.shape() != root.shape() || one_.dtype() != root.dtype() ||
        one_.storage()->version() != version_ || stream_ != stream || capture_ != capture_id()) {
      const Tensor one = ones(root.shape(), {root.dtype(), root.device()});
      mark_ones(one);
      one_ = one;
      version_ = one.storage()->version();
      stream_ = stream;
      capture_ = capture_id();
    }
    return one_;
  }

  // Removes tensors that their owners have freed.
  void forget_dead() {
    std::erase_if(attached, [](const Attached& a) { return !a.leaf->tensor().defined(); });
  }

 private:
  Tensor one_;
  uint32_t version_ = 0;  // of one_'s storage when it was filled
  std::optional<Stream> stream_;
  uint64_t capture_ = 0;
};

using Objects = std::vector<std::shared_ptr<GradCallback>>;

// Calls f(object) once for each callback object of the attached tensors that `selects` selects, in the order
// of attaching. Allocates nothing.
template <class Predicate, class F>
void for_each_object(const ManagerState& manager, Predicate selects, F f) {
  // An object attached to several tensors is called at its first occurrence.
  const auto first_occurrence = [&](const GradCallback* object) -> const Callback* {
    for (const Attached& a : manager.attached)
      for (const Callback& c : a.callbacks)
        if (c.object.get() == object && selects(a)) return &c;
    return nullptr;
  };
  for (const Attached& a : manager.attached)
    for (const Callback& c : a.callbacks)
      if (c.object && first_occurrence(c.object.get()) == &c) f(c.object);
}

template <class Predicate> Objects objects_of(const ManagerState& manager, Predicate selects) {
  Objects found;
  for_each_object(manager, selects, [&](const auto& object) { found.push_back(object); });
  return found;
}

namespace {

// Returns a predicate: whether the attached tensor is a leaf of the recording.
auto followed_by(const RecordingState& state) {
  return [&state](const Attached& a) { return state.has_leaf(a.leaf.get()); };
}

// Stops recording and frees the graph. `error` is the exception of the recording's backward; null: none.
void finish(RecordingState& state, std::exception_ptr error = {}) {
  close_recording(&state);
  state.finish(error);
}

// Passes the gradients of one backward through the callbacks and stores them in grad(). An index t is a
// position in the manager's list of attached tensors. An undefined gradient means that none arrived.
class Deliveries {
 public:
  Deliveries(std::vector<Attached> attached, Objects objects)
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

  // Delivers a gradient of backward_inputs, before begin. All callbacks of the tensor are functions.
  void deliver_early(size_t t, Tensor grad) { advance(t, 0, {{}, std::move(grad)}); }
  // Delivers a gradient, and then the kept gradients that the callback objects have completed meanwhile.
  void deliver(size_t t, Tensor grad) {
    advance(t, 0, {{}, std::move(grad)});
    for (const auto& object : objects_) pass_on(object.get(), object->landed());
  }

  // Calls finish on the objects in order, passes the gradients they deliver to the callbacks after them, and
  // removes each object from `unfinished`.
  void finish(Objects& unfinished) {
    for (const auto& object : objects_) {
      pass_on(object.get(), object->finish());
      std::erase(unfinished, object);
    }
  }

  // Assigns the results to grad(), or adds them if grad() is defined. Clears the results.
  void store() {
    Sums sums;
    for (size_t t = 0; t < attached_.size(); ++t)
      if (results_[t].grad.defined())
        store(*attached_[t].leaf, params_[t], std::exchange(results_[t], {}), sums);
    raw::add_all_(sums.to, sums.terms);
    for (auto& [leaf, grad] : sums.replacing) leaf->grad = std::move(grad);
  }

 private:
  using Delivery = GradCallback::Delivery;

  // Returns the object's index among the callbacks of tensor t; nullopt: the object is not attached to t.
  std::optional<size_t> position(size_t t, const GradCallback* object) const {
    const auto& callbacks = attached_[t].callbacks;
    for (size_t k = 0; k < callbacks.size(); ++k)
      if (callbacks[k].object.get() == object) return k;
    return std::nullopt;
  }

  // Passes gradients to the callbacks after this object.
  void pass_on(const GradCallback* object, std::vector<Delivery> deliveries) {
    for (Delivery& d : deliveries) {
      const auto p =
          std::find_if(params_.begin(), params_.end(), [&](const Tensor& p) { return p.is_same(d.param); });
      const std::optional<size_t> k =
          p == params_.end() ? std::nullopt : position(p - params_.begin(), object);
      if (!k)
        throw StateError("backward",
                         "a callback delivered a gradient for a tensor that is not attached to it");
      advance(p - params_.begin(), *k + 1, std::move(d));
    }
  }

  // Passes a gradient through the callbacks from the k-th on, until one of them keeps it for later.
  void advance(size_t t, size_t k, Delivery d) {
    const auto& callbacks = attached_[t].callbacks;
    if (!callbacks.empty()) d.grad = to_dense(d.grad);
    for (; k < callbacks.size(); ++k) {
      std::optional<Tensor> next;
      if (callbacks[k].object) {
        if (std::find(objects_.begin(), objects_.end(), callbacks[k].object) == objects_.end()) continue;
        next = callbacks[k].object->ready(params_[t], d.grad);
        if (!next) return;
      } else if (d.grad.defined()) {
        next = callbacks[k].function(params_[t], d.grad);
      } else {
        continue;
      }
      d.may_alias = d.may_alias && next->is_same(d.grad);
      d.grad = std::move(*next);
    }
    const Tensor& param = params_[t];
    if (d.grad.defined() && (!(d.grad.shape() == param.shape()) || d.grad.dtype() != param.dtype()))
      throw ShapeError("backward", "a callback returned a gradient ", describe(d.grad), " for ",
                       describe(param));
    results_[t] = std::move(d);
  }

  // Additions to the gradients of earlier backwards, batched into one call: to[i] += terms[i].
  struct Sums {
    std::vector<Tensor> to, terms;
    std::vector<std::pair<Leaf*, Tensor>> replacing;  // sums that then become the leaf's grad
  };

  // In a step that is being recorded: notes that it sets this gradient, unless the parameter is made by the step.
  static void note_in_capture(Leaf& leaf, const Tensor& param) {
    check_gradient_of_step("backward", leaf);
    if (Capture* capture = recording_capture(); capture && !capture->is_own(*param.storage()))
      capture->add_leaf(Ref<Counted>(&leaf), !leaf.grad.defined());
  }

  static void store(Leaf& leaf, const Tensor& param, Delivery d, Sums& sums) {
    note_in_capture(leaf, param);
    Tensor& grad = d.grad;
    if (is_sparse(grad) && (!leaf.grad.defined() || is_sparse(leaf.grad))) {
      leaf.grad = leaf.grad.defined() ? add_sparse(leaf.grad, grad) : std::move(grad);
      return;
    }
    if (is_sparse(leaf.grad)) leaf.grad = to_dense(leaf.grad);
    grad = to_dense(grad);
    if (!grad.is_dense() || (param.is_row_major() && !grad.is_row_major())) {
      grad = contiguous(grad);  // an in-place write needs an address of its own for each element
      d.may_alias = false;
    }
    // In-place sums need operands that no open recording tracks (second order).
    const bool plain = !is_tracked(grad) && !(leaf.grad.defined() && is_tracked(leaf.grad));
    if (!leaf.grad.defined()) {
      leaf.grad =
          d.may_alias || grad.is_sole_owner() ? std::move(grad) : clone(grad);  // shared only if may_alias
    } else if (d.may_alias && plain) {
      // grad() stays a view of the callback's buffer, so the old gradient is added to the new one.
      sums.to.push_back(grad), sums.terms.push_back(leaf.grad);
      sums.replacing.emplace_back(&leaf, std::move(grad));
    } else if (leaf.grad.is_sole_owner() && plain) {
      sums.to.push_back(leaf.grad), sums.terms.push_back(std::move(grad));
    } else {
      leaf.grad = add(leaf.grad, grad);
    }
  }

  std::vector<Attached> attached_;
  Objects objects_;             // the callback objects of the recording's tensors
  std::vector<Tensor> params_;  // the attached tensors, kept alive during the backward
  std::vector<Delivery> results_;
};

// Returns one dy per root. An empty list and an undefined dy mean ones, for a root of one element.
std::vector<Tensor> with_default_dys(ManagerState& manager, const std::vector<Tensor>& roots,
                                     std::vector<Tensor> dys) {
  if (!dys.empty() && dys.size() != roots.size())
    throw ValueError("backward", "needs one dy per root: ", roots.size(), " roots, ", dys.size(), " dys");
  dys.resize(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    if (!root.defined())
      throw StateError("backward", roots.size() == 1 ? "the loss" : concat("root ", i, " of ", roots.size()),
                       " is undefined (none)");
    if (!is_floating(root.dtype()))
      throw DTypeError("backward", "the root must be floating point, got ", describe(root));
    if (dys[i].defined()) {
      if (!(dys[i].shape() == root.shape()))
        throw ShapeError("backward", "dy must have the root's shape: dy ", describe(dys[i]), ", root ",
                         describe(root));
      continue;
    }
    check_one_element("backward", "the loss", root, " (or pass its dy)");
    const OpCall call("backward");
    dys[i] = manager.one_like(root);
  }
  return dys;
}

}  // namespace

// A backward that has computed the gradients of the inputs, and has deferred the others.
struct DeferredWeights {
  Objects unfinished;
  Deliveries deliveries;
  std::unique_ptr<DeferringPass> pass;
};

namespace {

void check_open(const RecordingState& state, const char* op) {
  if (state.finished())
    throw StateError(op, "no computation history: this recording was already used by backward or released; ",
                     "call record() and compute the loss again, or pass all losses to one backward({a, b})");
}

// Calls f, with autocast off; f's ops are recorded by the enclosing recordings alone (second order). If f
// throws, ends the recording and calls abandon on the unfinished objects.
template <class F> void end_on_error(RecordingState& state, const Objects& unfinished, const F& f) {
  const RunningRange running = observed({.kind = RangeKind::kUser, .name = "backward"});
  // `scope` restores the thread's list of recordings, which still has this one.
  struct CloseFinished {
    const RecordingState& state;
    ~CloseFinished() {
      if (state.finished()) close_recording(&state);
    }
  } close{state};
  const RecordingsScope scope(recordings_of_backward(state));
  const NoAutocast as_recorded;
  try {
    f();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    finish(state, error);
    for (const auto& object : unfinished) object->abandon(error);
    throw;
  }
}

// Returns the dys of a backward from these roots.
// Errors: StateError if the recording follows none of the roots.
std::vector<Tensor> checked_dys(const RecordingState& state, const std::vector<Tensor>& roots,
                                const std::vector<Tensor>& given) {
  std::vector<Tensor> dys = with_default_dys(*state.manager, roots, given);
  const bool reaches = std::any_of(roots.begin(), roots.end(), [&](const Tensor& r) {
    return r.ref()->slot && state.follows(r.ref()->slot.get());
  });
  if (!roots.empty() && !reaches)
    throw StateError("backward", "the loss depends on no attached tensor: ", describe(roots[0]), ", ",
                     state.leaves().size(), " tensors attached",
                     state.records_subset ? " (narrowed by `only`)" : "", "; ",
                     state.manager->attached.empty()
                         ? kEmptyParametersHint
                         : "was it computed outside of record(), or detached? autograd::explain(loss) tells");
  return dys;
}

// Returns the pass's targets: the attached tensors, with a null edge for those outside of the recording.
std::vector<Edge> targets_of(const RecordingState& state) {
  std::vector<Edge> all;
  for (const Attached& a : state.manager->attached)
    all.push_back(state.has_leaf(a.leaf.get()) ? Edge{a.leaf, 0} : Edge{});
  return all;
}

// Returns BackwardPass::read_after_pass: true for targets without callbacks.
std::vector<char> read_after_pass(const RecordingState& state) {
  std::vector<char> flags;
  for (const Attached& a : state.manager->attached) flags.push_back(a.callbacks.empty());
  return flags;
}

void compute(RecordingState& state, const std::vector<Tensor>& roots, const std::vector<Tensor>& given_dys,
             Objects& unfinished) {
  std::vector<Tensor> dys = checked_dys(state, roots, given_dys);
  Deliveries deliveries(state.manager->attached, unfinished);
  BackwardPass pass{.recording = state,
                    .roots = roots,
                    .dys = std::move(dys),
                    .targets = targets_of(state),
                    .read_after_pass = read_after_pass(state)};
  pass.begin = [&](const std::vector<bool>& reached) { deliveries.begin(reached); };
  pass.deliver = [&](size_t t, Tensor grad) { deliveries.deliver(t, std::move(grad)); };
  run(pass);
  deliveries.finish(unfinished);
  deliveries.store();
}

// Runs the backward and ends the recording, also when the backward throws.
void run_backward(RecordingState& state, const std::vector<Tensor>& roots, const std::vector<Tensor>& dys) {
  check_open(state, "backward");
  if (state.deferred)
    throw StateError("backward",
                     "this recording's backward has begun with backward_inputs: call backward_weights");
  state.manager->forget_dead();
  Objects unfinished = objects_of(*state.manager, followed_by(state));
  end_on_error(state, unfinished, [&] { compute(state, roots, dys, unfinished); });
  finish(state);
}

void run_backward_inputs(RecordingState& state, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& roots, const std::vector<Tensor>& given_dys) {
  constexpr auto kOp = "backward_inputs";
  check_open(state, kOp);
  if (state.deferred)
    throw StateError(kOp, "this recording's backward has begun already: call backward_weights");
  if (!recordings_of_backward(state).empty())
    throw StateError(kOp,
                     "a backward in two parts is for first order alone, and a recording that was opened "
                     "before this one would record it for the second order");
  state.manager->forget_dead();
  std::vector<char> is_deferred(state.manager->attached.size(), true);
  for (const Tensor& input : inputs) {
    const auto& slot = input.defined() ? input.ref()->slot : Ref<AutogradSlot>();
    const auto found = std::ranges::find_if(
        state.manager->attached, [&](const Attached& a) { return slot && a.leaf.get() == slot.get(); });
    if (found == state.manager->attached.end() || !state.has_leaf(slot.get()))
      throw StateError(kOp, "an input must be attached to the manager: ",
                       input.defined() ? describe(input) : "undefined (none)");
    if (std::ranges::any_of(found->callbacks, [](const Callback& c) { return bool(c.object); }))
      throw StateError(
          kOp, "an input's callbacks must be functions: a callback object sees a backward as a whole");
    is_deferred[size_t(found - state.manager->attached.begin())] = false;
  }
  std::vector<Tensor> dys = checked_dys(state, roots, given_dys);
  Objects unfinished = objects_of(*state.manager, followed_by(state));
  state.deferred = std::make_shared<DeferredWeights>(
      DeferredWeights{unfinished, {state.manager->attached, unfinished}, nullptr});
  Deliveries& deliveries = state.deferred->deliveries;
  BackwardPass pass{.recording = state,
                    .roots = roots,
                    .dys = std::move(dys),
                    .targets = targets_of(state),
                    .read_after_pass = read_after_pass(state),
                    .deferred = is_deferred};
  pass.begin = [&](const std::vector<bool>& reached) { deliveries.begin(reached); };
  pass.deliver = [&deliveries, is_deferred](size_t t, Tensor grad) {
    if (is_deferred[t])
      deliveries.deliver(t, std::move(grad));
    else
      deliveries.deliver_early(t, std::move(grad));
  };
  state.deferred->pass = std::make_unique<DeferringPass>(std::move(pass));
  end_on_error(state, unfinished, [&] {
    state.deferred->pass->run();
    deliveries.store();
  });
  close_recording(&state);
}

void run_backward_weights(RecordingState& state) {
  check_open(state, "backward_weights");
  if (!state.deferred) throw StateError("backward_weights", "call backward_inputs first");
  const std::shared_ptr<DeferredWeights> weights = std::move(state.deferred);
  end_on_error(state, weights->unfinished, [&] {
    weights->pass->run_deferred();
    weights->deliveries.finish(weights->unfinished);
    weights->deliveries.store();
  });
  finish(state);
}

// Ends the recording without a backward, unless it has ended. Allocates nothing, because destructors call it.
void drop(RecordingState& state) {
  if (state.finished()) return;
  finish(state);
  state.deferred = nullptr;
  for_each_object(*state.manager, followed_by(state), [](const auto& object) { object->abandon({}); });
}

}  // namespace
}  // namespace autograd

using autograd::RecordingState;

namespace {
RecordingState& checked(const Ref<RecordingState>& state, const char* op) {
  if (!state) throw StateError(op, "this Recording is empty (default-made or moved from)");
  return *state;
}
}  // namespace

Recording::Recording() = default;
Recording::Recording(Recording&&) noexcept = default;
Recording::Recording(Ref<RecordingState> state) : state_(std::move(state)) {
  std::vector<RecordingState*>& open = state_->manager->open;
  open.reserve(open.size() + 1);  // what may throw is done before the recording is open
  autograd::open_recording(state_);
  open.push_back(state_.get());
}
Recording& Recording::operator=(Recording&& other) noexcept {
  Recording taken(std::move(other));  // after the swap, its destructor ends this object's previous recording
  std::swap(state_, taken.state_);
  return *this;
}
Recording::~Recording() {
  if (!state_) return;
  release();
  state_->deferred = nullptr;
  std::erase(state_->manager->open, state_.get());
}

Recording& Recording::pause() & {
  autograd::close_recording(&checked(state_, "pause"));
  return *this;
}

Recording&& Recording::pause() && {
  pause();
  return std::move(*this);
}

void Recording::resume() {
  if (checked(state_, "resume").finished())
    throw StateError("resume", "this recording has ended; call record()");
  autograd::close_recording(state_.get());  // resuming twice is fine
  autograd::open_recording(state_);
}

void Recording::backward(TensorList roots, TensorList dys) {
  autograd::run_backward(checked(state_, "backward"), roots.get(), dys.get());
}

void Recording::backward_inputs(TensorList inputs, TensorList roots, TensorList dys) {
  autograd::run_backward_inputs(checked(state_, "backward_inputs"), inputs.get(), roots.get(), dys.get());
}

void Recording::backward_weights() { autograd::run_backward_weights(checked(state_, "backward_weights")); }

void Recording::release() {
  if (state_) autograd::drop(*state_);
}

bool Recording::is_open() const { return state_ && !state_->finished(); }

NoRecord::NoRecord() { suspended_.swap(Context::current().recordings); }
NoRecord::~NoRecord() { suspended_.swap(Context::current().recordings); }

GradManager::GradManager() : state_(std::make_shared<autograd::ManagerState>()) {}

const std::shared_ptr<autograd::ManagerState>& GradManager::state(const char* op) const {
  if (!state_) throw StateError(op, "this GradManager was moved from");
  return state_;
}

GradManager& GradManager::attach(TensorList tensors, std::vector<Callback> callbacks) & {
  state("attach")->forget_dead();
  const std::vector<Tensor>& given = tensors.get();
  for (size_t i = 0; i < given.size(); ++i)  // checks all tensors before it attaches one
    if (!given[i].defined())
      throw StateError("attach", "tensor ", i, " of ", given.size(), " is undefined (none)");
  if (!Context::current().capture) ++state_->attachments;
  for (const Tensor& x : given) {
    const Ref<autograd::Leaf> leaf = autograd::leaf_of(x);
    auto& attached = state_->attached;
    auto it = std::find_if(attached.begin(), attached.end(), [&](const auto& a) { return a.leaf == leaf; });
    if (it == attached.end()) it = attached.insert(it, {leaf, {}});
    for (const Callback& c : callbacks) {
      const auto is_it = [&](const Callback& other) { return c.object && other.object == c.object; };
      if (std::any_of(it->callbacks.begin(), it->callbacks.end(), is_it)) continue;
      if (c.object) c.object->attached_to(x);  // may refuse x
      it->callbacks.push_back(c);
    }
    for (RecordingState* open : state_->open)
      if (!open->finished() && !open->records_subset) {
        autograd::check_guard(*leaf, it->callbacks);
        open->add_leaf(leaf);
      }
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

// Calls recording_opened of the callback objects, which may attach more tensors.
void notify_recording_opened(GradManager& gm, autograd::ManagerState& manager) {
  manager.forget_dead();
  for (const auto& object : autograd::objects_of(manager, [](const auto&) { return true; }))
    object->recording_opened(gm);
}

// Returns a new recording of the attached tensors, or of `only` if it is not empty. `level` is the nesting
// level of the recording; 0: a new level (see RecordingState).
Ref<RecordingState> state_for(const std::shared_ptr<autograd::ManagerState>& owner, const TensorList& only,
                              uint64_t level) {
  autograd::ManagerState& manager = *owner;
  manager.forget_dead();
  std::vector<Ref<AutogradSlot>> leaves;
  const auto is_chosen = [&](const Ref<AutogradSlot>& slot) {
    return std::find(leaves.begin(), leaves.end(), slot) != leaves.end();
  };
  for (const auto& a : manager.attached) leaves.push_back(a.leaf);
  if (!only.empty()) {
    std::vector<Ref<AutogradSlot>> chosen;
    for (const Tensor& x : only.get()) {
      const Ref<AutogradSlot> slot = x.defined() ? x.ref()->slot : nullptr;
      if (!slot || !is_chosen(slot))
        throw StateError("record", "`only` names a tensor that is not attached: ", describe(x));
      chosen.push_back(slot);
    }
    leaves = std::move(chosen);
  }
  for (const auto& a : manager.attached)
    if (only.empty() || is_chosen(a.leaf)) autograd::check_guard(*a.leaf, a.callbacks);
  auto state = make_ref<RecordingState>(leaves, level);
  state->manager = owner;
  state->records_subset = !only.empty();
  if (Capture* capture = recording_capture())
    capture->valid_while([owner, count = manager.attachments] { return count == owner->attachments; });
  return state;
}

}  // namespace

Recording GradManager::record(RecordOptions options) {
  notify_recording_opened(*this, *state("record"));
  return Recording(state_for(state_, options.only, 0));
}

Ref<RecordingState> GradManager::innermost_open() const {
  for (auto it = state_->open.rbegin(); it != state_->open.rend(); ++it)
    if (!(*it)->finished()) return Ref<RecordingState>(*it);
  return nullptr;
}

void GradManager::backward(TensorList roots, TensorList dys) {
  state("backward");
  Ref<RecordingState> recording = innermost_open();
  if (!recording && !state_->open.empty())
    recording = Ref<RecordingState>(state_->open.back());  // run_backward throws: it has ended
  if (!recording)
    throw StateError(
        "backward",
        "no computation history: call record() before the forward; a recording serves one backward");
  autograd::run_backward(*recording, roots.get(), dys.get());
}

void GradManager::release() {
  state("release");
  if (const Ref<RecordingState> recording = innermost_open()) autograd::drop(*recording);
}

std::vector<GradCallback::Delivery> GradCallback::landed() { return {}; }

GradManagerGroup::GradManagerGroup(std::initializer_list<GradManager*> managers) : managers_(managers) {}

GradManagerGroup GradManagerGroup::operator|(GradManager& gm) && {
  managers_.push_back(&gm);
  return std::move(*this);
}
GradManagerGroup operator|(GradManager& a, GradManager& b) { return {&a, &b}; }

std::vector<Recording> GradManagerGroup::record() {
  for (GradManager* gm : managers_) notify_recording_opened(*gm, *gm->state("record"));
  std::vector<Recording> recordings;
  uint64_t level = 0;
  for (GradManager* gm : managers_) {
    recordings.push_back(Recording(state_for(gm->state_, {}, level)));
    level = recordings.back().state_->level();
  }
  return recordings;
}

}  // namespace gradus
