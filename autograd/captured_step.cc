// CapturedStep: chooses a recording by its Key, and replays it with inputs copied into the recording's own. On the
// CPU a recording is the list of kernel calls (CallRecorder), on a GPU a CUDA graph (GraphCapture). Random ops read
// the generator's state from memory that each replay updates (DeviceDraws).
#include "gradus/autograd/captured_step.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/node.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/tensor/call_recorder.h"
#include "gradus/tensor/graph_capture.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus {
namespace {

using Tensors = CapturedStep::Tensors;

// While alive, `capture` is this thread's capture.
class CaptureScope {
 public:
  explicit CaptureScope(Ref<Capture> capture) { Context::current().capture = std::move(capture); }
  ~CaptureScope() { Context::current().capture = nullptr; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

// What a recording depends on, beside the tensors that the function uses.
struct Key {
  struct Input {
    Device device;
    DType dtype;
    Shape shape;
    Strides strides;
    bool operator==(const Input&) const = default;
  };
  std::vector<Input> inputs;
  std::optional<DType> autocast;
  bool deterministic, tf32, exact_weight_gradients;
  std::shared_ptr<RandomGenerator> generator;
  bool operator==(const Key&) const = default;
};
Key key_of(const Tensors& inputs) {
  const Context& c = Context::current();
  Key key{{}, autocast_dtype(), c.deterministic, c.tf32, c.exact_weight_gradients, c.generator};
  for (const Tensor& x : inputs) key.inputs.push_back({x.device(), x.dtype(), x.shape(), x.strides()});
  return key;
}

template <class F> Tensors map(const Tensors& xs, F f) {
  Tensors all;
  for (const Tensor& x : xs) all.push_back(x.defined() ? f(x) : x);
  return all;
}
Tensors detached(const Tensors& xs) {
  return map(xs, [](const Tensor& x) { return detach(x); });
}
Tensors copies(const Tensors& xs) {
  return map(xs, [](const Tensor& x) { return raw::clone(x); });
}

// Returns f() with `stream` as the current stream, after the caller's work and before its later work.
template <class F> auto run_on(const Stream& stream, F f) {
  const Stream callers = current_stream(stream.device());
  stream.wait(Event::record(callers));
  const struct Join {  // also if f throws: its work is queued
    const Stream& callers;
    const Stream& stream;
    ~Join() {
      try {
        callers.wait(Event::record(stream));
      } catch (const std::exception&) {
        // The device has failed, and the next call on it throws.
      }
    }
  } join{callers, stream};
  const StreamScope scope(stream);
  return f();
}

// A step for inputs of one layout.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual Tensors warm_up(const CapturedStep::Function& step, const Tensors& inputs) = 0;
  // Whether the objects of the last warm-up have not changed since, so that the step may be recorded.
  virtual bool is_warm() const = 0;
  virtual bool is_current() const = 0;  // whether it is recorded, and its tensors were not replaced since
  // Records the step with these inputs, which later replays read, and runs it once.
  virtual Tensors record(const CapturedStep::Function& step, const Tensors& inputs) = 0;
  // Returns false, and does nothing, if another process does not replay the step.
  virtual bool replay() = 0;
  // Enclose the copies of inputs and results on the caller's stream, which may be another one in each call.
  virtual void begin_copies() {}
  virtual void end_copies() {}
  virtual const Capture& capture() const = 0;  // of the recorded step
  // Whether the recorded step uses `storage`, which existed before it.
  virtual bool uses(const Storage& storage) const = 0;
  virtual int64_t memory_bytes() const = 0;
};

class CpuRecording final : public Recording {
 public:
  Tensors warm_up(const CapturedStep::Function& step, const Tensors& inputs) override { return step(inputs); }
  bool is_warm() const override { return true; }
  bool is_current() const override { return calls_ && calls_->is_current(); }
  // The recording itself computes the step.
  Tensors record(const CapturedStep::Function& step, const Tensors& inputs) override {
    auto calls = make_ref<internal::CallRecorder>();
    Tensors outputs;
    {
      const DeviceDraws::Scope draws(draws_);
      const CaptureScope capture(calls);
      outputs = detached(step(inputs));
    }
    calls->finish();
    calls_ = std::move(calls);
    return outputs;
  }
  bool replay() override {
    draws_.repeat();
    calls_->replay();
    return true;
  }
  const Capture& capture() const override { return *calls_; }
  bool uses(const Storage& storage) const override { return calls_->uses(storage); }
  int64_t memory_bytes() const override { return calls_ ? calls_->arena_bytes() : 0; }

 private:
  DeviceDraws draws_{kCPU};
  Ref<internal::CallRecorder> calls_;  // null: not recorded
};

class GpuRecording final : public Recording {
 public:
  explicit GpuRecording(Device device) : stream_(Stream::create(device)), draws_(device) {}

  // Optimizers put their states on the device, for which they ask the capture.
  Tensors warm_up(const CapturedStep::Function& step, const Tensors& inputs) override {
    start_capture();
    const CaptureScope capture(graph_);
    return run_on(stream_, [&] { return step(inputs); });
  }
  bool is_warm() const override { return graph_ && graph_->is_valid(); }
  bool is_current() const override { return graph_ && graph_->is_current(); }
  // A capture runs nothing: it leaves the generator as it was, and the first launch makes the step.
  Tensors record(const CapturedStep::Function& step, const Tensors& inputs) override {
    start_capture();
    const std::shared_ptr<RandomGenerator> generator = Context::current().generator;
    const auto state = generator->state();
    const Tensors outputs = run_on(stream_, [&] {
      try {
        return capture_step(step, inputs);
      } catch (...) {
        graph_->discard();
        generator->set_state(state);
        throw;
      }
    });
    generator->set_state(state);
    if (!replay()) throw StateError("CapturedStep", "another rank has not recorded the step");
    return outputs;
  }
  bool replay() override {
    const std::shared_ptr<RandomGenerator> generator = Context::current().generator;
    const auto state = generator->state();
    const bool has_run = run_on(stream_, [&] {
      draws_.repeat();
      return graph_->launch();
    });
    if (!has_run) generator->set_state(state);
    return has_run;
  }
  void begin_copies() override {
    if (copied_) current_stream(stream_.device()).wait(*copied_);
  }
  void end_copies() override { copied_ = Event::record(current_stream(stream_.device())); }
  const Capture& capture() const override { return *graph_; }
  bool uses(const Storage& storage) const override { return graph_->uses(storage); }
  int64_t memory_bytes() const override { return 0; }

 private:
  void start_capture() {
    graph_ = nullptr;  // one capture at a time has the stream
    graph_ = make_ref<internal::GraphCapture>(stream_);
  }

  Tensors capture_step(const CapturedStep::Function& step, const Tensors& inputs) {
    const DeviceDraws::Scope draws(draws_);
    const CaptureScope capture(graph_);
    graph_->begin();
    Tensors outputs = detached(step(inputs));
    graph_->end();
    return outputs;
  }

  const Stream stream_;
  DeviceDraws draws_;
  Ref<internal::GraphCapture> graph_;
  std::optional<Event> copied_;  // the results of the last call
};

}  // namespace

struct CapturedStep::Entry {
  Key key;
  Tensors inputs;   // of the recording
  Tensors outputs;  // of the recording
  int warm_up = 0;  // calls so far
  bool has_recording = false;
  uint64_t exchanged_parameters = 0;  // internal::exchanged_parameters after the recording
  // The gradients that the step leaves, by leaf, in memory of the recording; undefined if it clears them.
  std::vector<std::pair<Ref<autograd::Leaf>, Tensor>> gradients;
  std::vector<Ref<autograd::Leaf>> empty_leaves;  // that have no gradient at the start of a step
  std::unique_ptr<Recording> recording;

  bool is_recorded() const {
    return has_recording && recording->is_current() && exchanged_parameters == internal::exchanged_parameters;
  }
  void record(const Function& step);
  bool replay();
  void store_gradients() const;
};

// Errors: those of the function; StateError if it writes to its inputs in place, or if an input is a tensor that
// it also uses otherwise: the recording has inputs of its own.
void CapturedStep::Entry::record(const Function& step) {
  std::vector<uint32_t> versions;
  for (const Tensor& x : inputs) versions.push_back(x.storage()->version());
  outputs = recording->record(step, detached(inputs));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].storage()->version() != versions[i])
      throw StateError("CapturedStep", "cannot capture a function that writes to its input ", i,
                       " in place: ", describe(inputs[i]));
  gradients.clear(), empty_leaves.clear();
  for (const auto& [leaf, was_empty] : recording->capture().leaves()) {
    const Ref<autograd::Leaf> of(leaf);
    const Tensor param = of->tensor();
    const auto is_param = [&](const Tensor& x) { return x.storage().get() == param.storage().get(); };
    if (!param.defined() || std::ranges::any_of(inputs, is_param)) continue;  // made by the step, or an input
    gradients.emplace_back(of, of->grad);
    if (was_empty) empty_leaves.push_back(of);
  }
  store_gradients();
  exchanged_parameters = internal::exchanged_parameters;
  has_recording = true;
}

// Errors: StateError if a parameter has a gradient where it had none in the recording, to which the function would
// add; those of the kernels.
bool CapturedStep::Entry::replay() {
  for (const Ref<autograd::Leaf>& leaf : empty_leaves)
    if (leaf->grad.defined())
      throw StateError(
          "CapturedStep", "the parameter ", describe(leaf->tensor()),
          " has a gradient, but had none when the step was captured: clear gradients in every step");
  if (!recording->replay()) return false;
  store_gradients();
  return true;
}

// Gives the parameters copies of dense gradients, which later replays do not change.
void CapturedStep::Entry::store_gradients() const {
  for (const auto& [leaf, grad] : gradients)
    leaf->grad = grad.defined() && !autograd::is_sparse(grad) ? raw::clone(grad) : grad;
}

CapturedStep::CapturedStep(Function step, CapturedStepOptions options)
    : step_(std::move(step)), options_(options) {
  if (options.warm_up < 0 || options.max_recordings < 0)
    throw ValueError("CapturedStep", "expected warm_up and max_recordings of at least 0, got ",
                     options.warm_up, " and ", options.max_recordings);
}
CapturedStep::~CapturedStep() = default;

// Errors: StateError for an undefined tensor, within a capture, or under an open recording; DeviceError for an
// unsupported device.
Device CapturedStep::checked_device(const Tensors& inputs) const {
  const OpCall call("CapturedStep", "inputs", inputs);
  if (Context::current().capture)
    throw StateError("CapturedStep", "cannot be captured: a captured step cannot be part of another one");
  const auto is_open = [](const Ref<Counted>& r) { return !autograd::as_recording(r)->finished(); };
  if (std::ranges::any_of(autograd::open_recordings(), is_open))
    throw StateError("CapturedStep", "would be missing in the open recording; call it outside");
  const Device device = inputs.empty() ? options_.device : inputs[0].device();
  for (const Tensor& x : inputs)
    if (x.device() != device || (device != kCPU && device.type != DeviceType::kCUDA))
      throw DeviceError("CapturedStep", "expected inputs on cpu, or on one GPU, got ", describe(x));
  return device;
}

// Returns the entry for these inputs, made on first use; null if there are too many others.
CapturedStep::Entry* CapturedStep::find(const Tensors& inputs, Device device) {
  Key key = key_of(inputs);
  const auto found = std::ranges::find_if(entries_, [&](const auto& e) { return e->key == key; });
  if (found != entries_.end()) return found->get();
  if (entries_.size() == static_cast<size_t>(options_.max_recordings)) return nullptr;
  auto entry = std::make_unique<Entry>();
  entry->key = std::move(key);
  entry->inputs = map(inputs, [](const Tensor& x) { return empty_like(x); });
  if (device == kCPU)
    entry->recording = std::make_unique<CpuRecording>();
  else
    entry->recording = std::make_unique<GpuRecording>(device);
  return entries_.emplace_back(std::move(entry)).get();
}

CapturedStep::Tensors CapturedStep::operator()(const Tensors& inputs) {
  const Device device = checked_device(inputs);
  Entry* const e = find(inputs, device);
  const bool is_recorded = e && e->is_recorded();
  if (e && e->has_recording && !is_recorded) e->has_recording = false, e->warm_up = 0;
  const bool is_warm = e && e->warm_up >= options_.warm_up && e->recording->is_warm();
  const bool all_agree = !hook_ || is_recorded || hook_->skip(is_warm);
  if (!e || (is_warm && !all_agree)) return copies(step_(detached(inputs)));
  if (!is_recorded && !is_warm) {
    ++e->warm_up;
    return copies(e->recording->warm_up(step_, detached(inputs)));
  }
  e->recording->begin_copies();
  for (size_t i = 0; i < inputs.size(); ++i) raw::copy_(e->inputs[i], inputs[i]);
  if (is_recorded) {
    if (!e->replay()) return copies(step_(detached(inputs)));
  } else {
    e->record(step_);
    if (const Ref<ReplayHook>& hook = e->recording->capture().replay_hook) hook_ = hook;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (e->recording->uses(*inputs[i].storage())) {
        e->has_recording = false;
        throw StateError("CapturedStep", "input ", i,
                         " is a tensor that the function also uses otherwise: ", describe(inputs[i]));
      }
  }
  const Tensors results = copies(e->outputs);
  e->recording->end_copies();
  return results;
}

size_t CapturedStep::num_recordings() const {
  return size_t(std::ranges::count_if(entries_, [](const auto& e) { return e->is_recorded(); }));
}

int64_t CapturedStep::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& e : entries_) bytes += e->recording->memory_bytes();
  return bytes;
}

}  // namespace gradus
