// GradManager: says which tensors are differentiated, records what depends on them, and runs the backward.
//
//   GradManager gm;
//   gm.attach(net.parameters());
//   {
//     auto recording = gm.record();
//     gm.backward(loss(net(x), y));          // sets or adds to grad() of every attached tensor that the loss
//     reaches
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

// Tensors as an argument: one, a list, or none. `gm.backward()`, `gm.backward({})`, `gm.backward(loss)`,
// `gm.backward({a, b})` and `gm.attach(net.parameters())` all work.
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

// The object form of a callback: sees a whole backward, and may hold gradients back to deliver them later (an
// all-reduce packs them into buckets). One object serves the tensors it was attached with, of one manager or
// of several. Calls come in this order: begin, ready once per tensor (those that are not reached first) with
// landed after each, finish. Each recording that follows one of its tensors ends with finish or with abandon;
// with both when a callback threw to which finish had delivered.
class GradCallback {
 public:
  struct Delivery {
    Tensor param, grad;
    bool as_is = false;  // becomes grad() though it shares its memory, with other gradients alone
  };

  virtual ~GradCallback() = default;
  // It was given to a manager with this tensor.
  virtual void attached_to(const Tensor& param) { (void)param; }
  // A manager that it is attached to is about to open a recording. It may attach further tensors: a
  // network's new ones.
  virtual void recording_opened(GradManager& manager) { (void)manager; }
  // Which of its tensors the backward will reach.
  virtual void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) = 0;
  // A tensor is done. `grad` is undefined when no gradient arrived. Returns the gradient to go on with, or
  // nothing to hold it back until finish.
  virtual std::optional<Tensor> ready(const Tensor& param, const Tensor& grad) = 0;
  // Gradients held back that have come meanwhile: callbacks chained after this one run at once.
  virtual std::vector<Delivery> landed() { return {}; }
  // Everything is done: the gradients held back, also of tensors that this backward did not reach.
  virtual std::vector<Delivery> finish() = 0;
  // The recording ended without a backward (`error` is null), or its backward threw: forget what is pending.
  virtual void abandon(std::exception_ptr error) noexcept { (void)error; }
};

// What `attach` takes: a GradCallback, or the light form `Tensor f(const Tensor& param, const Tensor& grad)`,
// called only when a gradient exists, as soon as it is complete; what it returns replaces the gradient.
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

// An open recording of a manager, closed when it goes out of scope. Movable, and may be paused: one manager
// can have several in flight, which finish in any order. Threads that share a Context record together; end a
// recording only when no other thread is recording into it.
class Recording {
 public:
  Recording() = default;
  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  // Stops recording the thread's ops until resume(); what was recorded stays.
  Recording& pause() &;
  Recording&& pause() &&;
  void resume();
  // Computes the gradients of the attached tensors from the roots, runs callbacks, sets or adds to `grad()`,
  // and empties the graph. `dys` default to ones for roots of one element. No roots: callbacks run, and ops
  // that answer to others.
  // Errors: StateError without a computation history and for an undefined root; ShapeError for a root of
  // several elements without its dy.
  void backward(TensorList roots = {}, TensorList dys = {});
  // Drops what was recorded; nothing more is recorded.
  void release();
  bool is_open() const;  // not finished by backward or release

 private:
  friend class GradManager;
  friend class GradManagerGroup;
  explicit Recording(std::shared_ptr<autograd::OpenRecording> open) : open_(std::move(open)) {}
  std::shared_ptr<autograd::OpenRecording> open_;
};

struct RecordOptions {
  TensorList only = {};  // differentiate these of the attached tensors alone; empty: all
};

class GradManager {
 public:
  GradManager();
  GradManager(GradManager&&) = default;
  GradManager& operator=(GradManager&&) = default;

  // Lists tensors to differentiate; held weakly: a tensor that its owner drops is forgotten. Attaching again
  // adds the callbacks to those there are. While recording, a tensor is followed from this moment on.
  // Errors: DTypeError unless floating point; StateError for an undefined tensor.
  GradManager& attach(TensorList tensors, std::vector<Callback> callbacks = {});
  template <class... C>
    requires(sizeof...(C) > 0 && (std::is_constructible_v<Callback, C> && ...))
  GradManager& attach(TensorList tensors, C... callbacks) {
    return attach(std::move(tensors), std::vector<Callback>{Callback(std::move(callbacks))...});
  }
  // The attached tensors that are alive, in the order of attaching.
  std::vector<Tensor> attached_tensors() const;

  // Opens a recording of the calling thread's ops. Recordings nest: a backward is seen by those
  // opened before it.
  [[nodiscard]] Recording record(RecordOptions options = {});
  // Recording::backward of the innermost open recording of this manager on which it was not yet called.
  // Errors: StateError when there is none.
  void backward(TensorList roots = {}, TensorList dys = {});
  // Recording::release of the innermost open recording; none is fine.
  void release();

 private:
  friend class GradManagerGroup;
  const std::shared_ptr<autograd::ManagerState>& state(const char* op) const;  // StateError once moved from
  std::shared_ptr<autograd::ManagerState> state_;
};

// Managers that record at the same level: each sees the others' backward.  auto r = (gm_a | gm_b).record();
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

// Says, for every attached tensor of the innermost open recording, whether `loss` reaches it and by which
// ops, and for one that it does not reach, where the way ends. `names` (optional) names tensors in the
// order of attaching.
std::string explain(const Tensor& loss, const std::vector<std::string>& names = {});

}  // namespace autograd
}  // namespace gradus
