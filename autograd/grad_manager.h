// GradManager: the tensors to differentiate, recordings of the ops on them, and their backward. A recording
// is a gradient tape.
//
//   GradManager gm;
//   gm.attach(net.parameters());
//   {
//     auto recording = gm.record();
//     gm.backward(loss(net(x), y));  // sets or adds to grad() of the attached tensors that the loss reaches
//   }
#pragma once

#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/autograd/graph/tracking.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// An argument of zero, one or several tensors: `gm.backward()`, `gm.backward({})`, `gm.backward(loss)`,
// `gm.backward({a, b})`, `gm.attach(net.parameters())`.
class TensorList {
 public:
  TensorList() = default;
  TensorList(const Tensor& x) : tensors_{x} {}
  TensorList(std::initializer_list<Tensor> xs) : tensors_(xs) {}
  TensorList(const std::vector<Tensor>& xs) : tensors_(xs) {}
  const std::vector<Tensor>& get() const { return tensors_; }
  bool empty() const { return tensors_.empty(); }

 private:
  std::vector<Tensor> tensors_;
};

class GradManager;

// The object form of a callback, for gradients that are processed together: an all-reduce keeps gradients,
// packs them into buckets, and delivers them later. One object serves all tensors it was attached with, of
// one manager or of several. All calls come from the thread that attaches, records or runs the backward; an
// exception in a backward ends the recording. Order of calls in a backward: begin; ready once per tensor,
// first for the tensors that are not reached, and landed after each ready; finish. Each recording that
// follows one of the object's tensors ends with finish or with abandon; with both when finish delivers a
// gradient to a later callback and that callback throws.
class GradCallback {
 public:
  struct Delivery {
    Tensor param, grad;
    // true: param.grad() may become `grad` itself, even if other tensors share its memory, as a view into an
    // all-reduce buffer does. false: such a gradient is cloned.
    bool may_alias = false;
  };

  virtual ~GradCallback() = default;
  // Called when the object is attached to a manager with `param`. May throw to refuse the tensor.
  virtual void attached_to(const Tensor& param) { (void)param; }
  // Called when a manager that the object is attached to is about to open a recording. The object may attach
  // further tensors, such as a network's new parameters.
  virtual void recording_opened(GradManager& manager) { (void)manager; }
  // Receives the object's tensors and, for each of them, whether the backward will reach it.
  virtual void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) = 0;
  // Called when a tensor's gradient is complete. `grad` is undefined when no gradient arrived. Returns the
  // gradient for the next callback, or nullopt if landed or finish will deliver the gradient later.
  virtual std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) = 0;
  // Returns kept gradients that have become available. The callbacks after this one run on them at once.
  virtual std::vector<Delivery> landed();
  // Called after ready of all tensors. Returns all gradients still kept, also those of tensors that this
  // backward did not reach.
  virtual std::vector<Delivery> finish() = 0;
  // Called when the recording ended without a backward (`error` is null) or when its backward threw. Discards
  // all pending gradients.
  virtual void abandon(std::exception_ptr error) noexcept { (void)error; }
};

// A callback for `attach`: a GradCallback, or a function `Tensor f(const Tensor& param, const Tensor& grad)`.
// The function is called as soon as the gradient is complete, and not if no gradient arrived. The returned
// tensor, of param's shape and dtype, replaces the gradient. Neither form may be null.
class Callback {
 public:
  using Function = std::function<Tensor(const Tensor& param, const Tensor& grad)>;
  template <class F>
    requires std::is_invocable_r_v<Tensor, F, const Tensor&, const Tensor&>
  Callback(F f) : function(std::move(f)) {}
  template <class T>
    requires std::is_base_of_v<GradCallback, T>
  Callback(std::shared_ptr<T> o) : object(std::move(o)) {}

  Function function;
  std::shared_ptr<GradCallback> object;
};

namespace autograd {
struct ManagerState;
class RecordingState;
}  // namespace autograd

// A gradient tape of a manager, which it may outlive; destruction ends it. A recording can be moved and
// paused. One manager can have several recordings open, which end in any order. Threads that share a Context
// record into the same recordings; attach to one, or end it, only while no other thread records into it.
// Errors: StateError for an empty (default-made or moved-from) Recording, except of release and is_open.
class Recording {
 public:
  Recording();
  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  // Stops recording the thread's ops until resume(). Ops recorded before stay in the graph.
  // Errors: StateError of resume when the recording has ended.
  Recording& pause() &;
  Recording&& pause() &&;
  void resume();
  // Computes the gradients of the attached tensors from the roots, runs the callbacks, sets or adds to
  // `grad()`, and ends the recording. `dys` default to ones for roots of one element. Without roots, only the
  // callbacks and required nodes (NodeTraits::required) run.
  // Errors: StateError when the recording has ended, for an undefined root, and when it follows none of the
  // roots; DTypeError for an integer root; ValueError unless there is one dy per root or none; ShapeError for
  // a dy of another shape than its root, a root of several elements without its dy, or a callback's result of
  // another shape or dtype than its tensor; errors of rules and callbacks. An error ends the recording.
  void backward(TensorList roots = {}, TensorList dys = {});
  // `backward` with deferred weight gradients, for zero-bubble pipeline schedules. backward_inputs computes
  // and stores the gradients of `inputs`: attached tensors whose callbacks, if any, are functions.
  // backward_weights computes the gradients of all other attached tensors. Both together give the gradients
  // of `backward`. Between the two calls the recording keeps only the tensors that backward_weights needs,
  // and records no ops; other recordings may run their backwards.
  // Errors: as for `backward`; StateError for an input that is not attached, for a recording within another
  // recording (second order), and for calls in another order.
  void backward_inputs(TensorList inputs, TensorList roots = {}, TensorList dys = {});
  void backward_weights();
  // Ends the recording without a backward, and frees its graph.
  void release();
  bool is_open() const;  // whether neither backward nor release has ended the recording

 private:
  friend class GradManager;
  friend class GradManagerGroup;
  explicit Recording(Ref<autograd::RecordingState> state);
  Ref<autograd::RecordingState> state_;
};

struct RecordOptions {
  TensorList only = {};  // differentiate only these, StateError unless attached; empty: all attached tensors
};

class GradManager {
 public:
  GradManager();
  GradManager(GradManager&&) = default;
  GradManager& operator=(GradManager&&) = default;

  // Adds tensors to differentiate. The manager has weak references: a tensor that its owner frees is removed.
  // Attaching a tensor again adds the callbacks to its list. Open recordings follow the tensor from this call
  // on.
  // Returns this manager, which can be moved on from a temporary: GradManager gm = GradManager().attach(w);
  // Errors: DTypeError unless floating point; StateError for an undefined tensor.
  GradManager& attach(TensorList tensors, std::vector<Callback> callbacks = {}) &;
  GradManager&& attach(TensorList tensors, std::vector<Callback> callbacks = {}) && {
    return std::move(attach(std::move(tensors), std::move(callbacks)));
  }
  template <class... C>
    requires(sizeof...(C) > 0 && (std::is_constructible_v<Callback, C> && ...))
  GradManager& attach(TensorList tensors, C... callbacks) & {
    return attach(std::move(tensors), std::vector<Callback>{Callback(std::move(callbacks))...});
  }
  template <class... C>
    requires(sizeof...(C) > 0 && (std::is_constructible_v<Callback, C> && ...))
  GradManager&& attach(TensorList tensors, C... callbacks) && {
    return std::move(attach(std::move(tensors), std::move(callbacks)...));
  }
  // Returns the attached tensors that are alive, in the order of attaching.
  std::vector<Tensor> attached_tensors() const;

  // Opens a recording of the calling thread's ops. Recordings nest: the recordings opened before this one
  // record its backward.
  // Errors: those of GradCallback::recording_opened and of guards of the tensors (leaf_guard.h).
  [[nodiscard]] Recording record(RecordOptions options = {});
  // Calls Recording::backward on this manager's innermost recording that has not ended.
  // Errors: StateError when there is none.
  void backward(TensorList roots = {}, TensorList dys = {});
  // Calls Recording::release on this manager's innermost recording that has not ended, if there is one.
  void release();

 private:
  friend class GradManagerGroup;
  const std::shared_ptr<autograd::ManagerState>& state(const char* op) const;  // StateError once moved from
  Ref<autograd::RecordingState> innermost_open() const;
  std::shared_ptr<autograd::ManagerState> state_;
};

// Managers whose recordings have the same level: each recording records the backward of the others.
//   auto r = (gm_a | gm_b).record();  // in the managers' order; the managers outlive the group
class GradManagerGroup {
 public:
  GradManagerGroup(std::initializer_list<GradManager*> managers);
  [[nodiscard]] std::vector<Recording> record();
  GradManagerGroup operator|(GradManager& gm) &&;

 private:
  std::vector<GradManager*> managers_;
};
GradManagerGroup operator|(GradManager& a, GradManager& b);

// Suspends all recording on this thread, where it also ends, for a scope: `auto off = no_record();`.
class [[nodiscard]] NoRecord {
 public:
  NoRecord();
  ~NoRecord();
  NoRecord(const NoRecord&) = delete;
  NoRecord& operator=(const NoRecord&) = delete;

 private:
  std::vector<Ref<Counted>> suspended_;
};
inline NoRecord no_record() { return {}; }

namespace autograd {

// Returns a report on every attached tensor of the innermost open recording that follows `loss`, or if none
// does of the innermost one: whether a path of recorded ops leads from the tensor to `loss`, and the ops on
// that path; if none does, the op after which the path ends. `names` (optional) names the tensors in the
// order of attaching, or of RecordOptions::only.
// Errors: StateError when no recording is open on this thread, or `loss` is undefined.
std::string explain(const Tensor& loss, const std::vector<std::string>& names = {});

}  // namespace autograd
}  // namespace gradus
