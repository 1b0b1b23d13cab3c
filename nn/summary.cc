// summary: runs a network twice in eval mode and once in training mode with backward, on copies of its
// parameters on the meta device (shapes without data), with forward hooks that log the layers' calls and an
// Observer of kernel launches that counts FLOPs. Peak memory is that of the meta device's allocator. Modules
// are restored afterward.
#include "gradus/nn/summary.h"

#include <algorithm>
#include <ostream>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/node.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/nn/text.h"
#include "gradus/tensor/flops.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::nn {
namespace {

constexpr Device kMeta{DeviceType::kMeta};

// Returns a meta tensor with x's shape, strides and dtype; undefined for undefined x.
Tensor on_meta(const Tensor& x) {
  return x.defined() ? empty_strided(x.shape(), x.strides(), {x.dtype(), kMeta}) : Tensor();
}

// Sums the FLOPs of all kernels that are launched while the Context has this observer.
class FlopCounter final : public Observer {
 public:
  void meta_kernel_launched(const char* op, std::span<const Tensor* const> tensors) override {
    total += kernel_flops(op, tensors);
  }
  int64_t total = 0;
};

// Logs the calls of all layers below `net` during its lifetime.
class CallLog {
 public:
  CallLog(Layer& net, const FlopCounter& flops) : flops_(flops) {
    for (auto& [path, module] : net.named_modules()) {
      auto* layer = dynamic_cast<Layer*>(module);
      if (!layer) continue;
      const int depth = path.empty() ? 0 : 1 + int(std::count(path.begin(), path.end(), '.'));
      hooks_.push_back(layer->register_forward_pre_hook([this, path = path, depth](Layer& l, const Tensor&) {
        // LayerCall::flops: minus the count before the call; the forward hook adds the count after it.
        open_.push_back(calls.size());
        calls.push_back({path, l.type_name(), depth, {}, l.num_parameters(), -flops_.total});
      }));
      hooks_.push_back(layer->register_forward_hook([this](Layer&, const Tensor&, const Tensor& y) {
        LayerCall& call = calls[open_.back()];
        open_.pop_back();
        call.output = y.shape();
        call.flops += flops_.total;
      }));
    }
  }
  ~CallLog() {
    for (HookHandle& h : hooks_) h.remove();
  }
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  std::vector<LayerCall> calls;

 private:
  const FlopCounter& flops_;
  std::vector<size_t> open_;  // stack of indices into `calls`: the calls in progress
  std::vector<HookHandle> hooks_;
};

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.nbytes();
  return bytes;
}

// Returns the peak number of bytes allocated on the meta device while f runs, minus `baseline`.
template <class F> int64_t peak_of(int64_t baseline, F f) {
  reset_peak_memory(kMeta);
  f();
  return memory_stats(kMeta).peak_bytes - baseline;
}

}  // namespace

Summary summary(Layer& net, const Shape& input, SummaryOptions options) {
  Summary s;
  s.parameters = net.num_parameters();
  s.parameter_bytes = bytes_of(net.parameters());
  s.buffer_bytes = bytes_of(net.buffers());

  // A Context with a new generator and without recordings, so that the caller's are not affected.
  Context context = Context::current().snapshot();
  context.recordings.clear();
  context.generator = std::make_shared<RandomGenerator>();
  context.device = kMeta;
  const auto counter = make_ref<FlopCounter>();
  FlopCounter& flops = *counter;
  context.observer = counter;
  const ContextScope in_context(context);

  const int64_t baseline = memory_stats(kMeta).live_bytes;
  StateDict tensors;
  for (const auto& [name, t] : net.named_parameters()) tensors.emplace_back(name, on_meta(t));
  for (const auto& [name, t] : net.named_buffers()) tensors.emplace_back(name, on_meta(t));
  const ParameterScope substituted(net, tensors);
  const Tensor x = empty(input, {options.dtype, kMeta});
  const internal::UnregisteredCalls unregistered;
  try {
    const ModeScope mode(net, false);
    {
      CallLog log(net, flops);
      net(x);
      s.calls = std::move(log.calls);
      s.forward_flops = flops.total;
    }
    s.inference_peak_bytes = peak_of(baseline, [&] { net(x); });
  } catch (Error& e) {
    for (const std::string& note : unregistered.messages()) e.add_context(note);
    throw;
  }
  s.unregistered = unregistered.messages();
  const ModeScope mode(net, true);
  flops.total = 0;
  s.training_peak_bytes = peak_of(baseline, [&] {
    GradManager gm;
    gm.attach(net.parameters());
    auto recording = gm.record();
    gm.backward(sum(net(x)));
  });
  s.training_flops = flops.total;
  return s;
}

std::string to_string(const Summary& s) {
  std::vector<std::array<std::string, 4>> lines{{"layer", "output", "parameters", "MFLOP"}};
  for (const LayerCall& c : s.calls) {
    const std::string name =
        c.path.empty() ? c.type : c.path.substr(c.path.rfind('.') + 1) + " (" + c.type + ")";
    lines.push_back({std::string(2 * c.depth, ' ') + name, gradus::to_string(c.output),
                     c.parameters ? with_commas(c.parameters) : "",
                     c.flops ? with_commas(c.flops / 1000000) : ""});
  }
  std::array<size_t, 4> width{};
  for (const auto& line : lines)
    for (size_t i = 0; i < 4; ++i) width[i] = std::max(width[i], line[i].size());
  std::string out;
  for (const auto& line : lines) {
    std::string text = line[0] + std::string(width[0] - line[0].size() + 2, ' ') + line[1] +
                       std::string(width[1] - line[1].size(), ' ');
    for (size_t i : {2, 3}) text += std::string(width[i] - line[i].size() + 2, ' ') + line[i];
    out += text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
  }
  for (const std::string& note : s.unregistered) out += note + '\n';
  out += with_commas(s.parameters) + " parameters (" + format_bytes(s.parameter_bytes) + "), buffers " +
         format_bytes(s.buffer_bytes) + "\n";
  out += "forward " + with_commas(s.forward_flops / 1000000) + " MFLOP, with backward " +
         with_commas(s.training_flops / 1000000) + " MFLOP\n";
  out += "peak memory " + format_bytes(s.inference_peak_bytes) + " for inference, " +
         format_bytes(s.training_peak_bytes) + " for training\n";
  return out;
}

std::ostream& operator<<(std::ostream& out, const Summary& s) { return out << to_string(s); }

// Names the leaves of the innermost recording that follows the loss, or else of the innermost open recording.
std::string explain(const Tensor& loss, const Module& net) {
  const StateDict parameters = net.named_parameters();
  Ref<autograd::RecordingState> state = autograd::innermost_following(loss);
  if (!state && !autograd::open_recordings().empty())
    state = Ref<autograd::RecordingState>(autograd::as_recording(autograd::open_recordings().back()));
  std::vector<std::string> names;
  if (state)
    for (const auto& leaf : state->leaves()) {
      const Tensor x = static_cast<const autograd::Leaf*>(leaf.get())->tensor();
      const auto own = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& entry) { return entry.second.is_same(x); });
      names.push_back(own != parameters.end() ? own->first : concat("tensor ", names.size()));
    }
  return autograd::explain(loss, names);
}

}  // namespace gradus::nn
