// GradManager: lists the tensors to differentiate, records the ops on them, and runs the backward.
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

// Holds tensors passed as an argument: one, a list, or none. `gm.backward()`, `gm.backward({})`,
// `gm.backward(loss)`, `gm.backward({a, b})` and `gm.attach(net.parameters())` all work.
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

// The object form of a callback. It sees a whole backward, and may hold gradients back and deliver them later
// (an all-reduce packs gradients into buckets). One object serves all tensors it was attached with, of one
// manager or of several. The calls come in this order: begin; ready once per tensor, first for the tensors
// that are not reached, with landed after each; finish. Each recording that follows one of the object's
// tensors ends with finish or with abandon. It ends with both when finish delivers a gradient to a later
// callback and that callback throws.
class GradCallback {
 public:
  struct Delivery {
    Tensor param, grad;
    bool as_is = false;  // grad() may keep this tensor, though it shares its memory with other gradients
  };

  virtual ~GradCallback() = default;
  // Called when the object was attached to a manager with this tensor.
  virtual void attached_to(const Tensor& param) { (void)param; }
  // Called when a manager that the object is attached to is about to open a recording. The object may attach
  // further tensors, such as a network's new parameters.
  virtual void recording_opened(GradManager& manager) { (void)manager; }
  // Receives the object's tensors and, for each of them, whether the backward will reach it.
  virtual void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) = 0;
  // Called when a tensor's gradient is complete. `grad` is undefined when no gradient arrived. Returns the
  // gradient for the next callback, or nothing to hold the gradient back until landed or finish delivers it.
  virtual std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) = 0;
  // Returns the gradients held back that have become available. The callbacks after this one run
  // on them at once.
  virtual std::vector<Delivery> landed() { return {}; }
  // Called when all tensors are done. Returns the gradients held back, also those of tensors that this
  // backward did not reach.
  virtual std::vector<Delivery> finish() = 0;
  // Called when the recording ended without a backward (`error` is null) or when its backward threw. Discards
  // all pending gradients.
  virtual void abandon(std::exception_ptr error) noexcept { (void)error; }
};

// What `attach` takes: a GradCallback, or a function `Tensor f(const Tensor& param, const Tensor& grad)`.
// The function is called as soon as the gradient is complete, and only when there is one. Its result
// replaces the gradient.
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
struct OpenRecording;
}  // namespace autograd

// An open recording of a manager, closed when it goes out of scope. A recording can be moved and paused. One
// manager can have several recordings open, which finish in any order. Threads that share a Context record
// together; end a recording only when no other thread records into it.
class Recording {
 public:
  Recording() = default;
  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  // Stops recording the thread's ops until resume(). What was recorded stays.
  Recording& pause() &;
  Recording&& pause() &&;
  void resume();
  // Computes the gradients of the attached tensors from the roots, runs the callbacks, sets or adds to
  // `grad()`, and empties the graph. `dys` default to ones for roots of one element. Without roots only the
  // callbacks run, and the ops that run without a gradient (Node::runs_without_gradient).
  // Errors: StateError without a computation history and for an undefined root; ShapeError for a root of
  // several elements without its dy.
  void backward(TensorList roots = {}, TensorList dys = {});
  // The same in two parts, for pipelines: first the gradients of `inputs`, which are attached tensors with
  // functions as callbacks, or none; later those of all other attached tensors. The inputs have their grad()
  // when backward_inputs returns. Together both parts give the gradients that `backward` gives. In between
  // the recording keeps what the second part needs alone, and the thread's ops are not recorded. Other
  // recordings may run their backwards meanwhile.
  // Errors: as for `backward`; StateError for an input that is not attached, for a recording within another
  // (second order), and for a part that is not its turn.
  void backward_inputs(TensorList inputs, TensorList roots = {}, TensorList dys = {});
  void backward_weights();
  // Drops what was recorded. Nothing more is recorded.
  void release();
  bool is_open() const;  // not finished by backward or release

 private:
  friend class GradManager;
  friend class GradManagerGroup;
  explicit Recording(std::shared_ptr<autograd::OpenRecording> open) : open_(std::move(open)) {}
  std::shared_ptr<autograd::OpenRecording> open_;
};

struct RecordOptions {
  TensorList only = {};  // differentiate only these of the attached tensors; empty: all
};

class GradManager {
 public:
  GradManager();
  GradManager(GradManager&&) = default;
  GradManager& operator=(GradManager&&) = default;

  // Adds tensors to differentiate. The manager holds them weakly: it forgets a tensor that its owner drops.
  // Attaching a tensor again adds the callbacks to those it has. Open recordings follow the tensor from
  // this moment on.
  // Errors: DTypeError unless floating point; StateError for an undefined tensor.
  GradManager& attach(TensorList tensors, std::vector<Callback> callbacks = {});
  template <class... C>
    requires(sizeof...(C) > 0 && (std::is_constructible_v<Callback, C> && ...))
  GradManager& attach(TensorList tensors, C... callbacks) {
    return attach(std::move(tensors), std::vector<Callback>{Callback(std::move(callbacks))...});
  }
  // Returns the attached tensors that are alive, in the order of attaching.
  std::vector<Tensor> attached_tensors() const;

  // Opens a recording of the calling thread's ops. Recordings nest: the recordings opened before this one
  // record its backward.
  [[nodiscard]] Recording record(RecordOptions options = {});
  // Calls Recording::backward on this manager's innermost recording that has not ended.
  // Errors: StateError when there is none.
  void backward(TensorList roots = {}, TensorList dys = {});
  // Calls Recording::release on this manager's innermost recording that has not ended, if there is one.
  void release();

 private:
  friend class GradManagerGroup;
  const std::shared_ptr<autograd::ManagerState>& state(const char* op) const;  // StateError once moved from
  std::shared_ptr<autograd::ManagerState> state_;
};

// Managers that record at the same level: each records the others' backward.
//   auto r = (gm_a | gm_b).record();
class GradManagerGroup {
 public:
  GradManagerGroup(std::initializer_list<GradManager*> managers) : managers_(managers) {}
  [[nodiscard]] std::vector<Recording> record();
  GradManagerGroup operator|(GradManager& gm) && {
    managers_.push_back(&gm);
    return std::move(*this);
  }

 private:
  std::vector<GradManager*> managers_;
};
inline GradManagerGroup operator|(GradManager& a, GradManager& b) { return {&a, &b}; }

// Suspends all recording on this thread for a scope: `auto off = no_record();`.
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

// Returns a text that says, for every attached tensor of the innermost open recording, whether `loss` reaches
// it and by which ops. For a tensor that the loss does not reach, the text says after which op the path ends.
// `names` (optional) names the tensors in the order of attaching.
std::string explain(const Tensor& loss, const std::vector<std::string>& names = {});

}  // namespace autograd
}  // namespace gradus
