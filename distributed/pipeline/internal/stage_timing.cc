// measure_stage: runs forward and backward of one pipeline stage on the Context's device with random inputs,
// in a copy of the Context without recordings, and returns medians of the times in seconds and sizes in
// bytes. sum_over_ranks: adds such numbers over the job by one all-reduce.
#include "gradus/distributed/pipeline/internal/stage_timing.h"

#include <algorithm>
#include <chrono>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/tracking.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Number of measured runs, after one warm-up run. It is constant, so that collectives of synchronized batch
// norms match between replicas.
constexpr int kMeasuredRuns = 4;

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

// Waits for the queued work of the device, and returns the time in seconds.
double synchronized_time() {
  Event::record(current_stream(Context::current().device)).synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Restores the model's gradients and buffers in its destructor.
class StateRestorer {
 public:
  explicit StateRestorer(nn::Module& model) {
    for (const Tensor& p : model.parameters())
      if (p.device().type != DeviceType::kMeta) parameters_.push_back(p), grads_.push_back(p.grad());
    for (const Tensor& b : model.buffers())
      if (b.device().type != DeviceType::kMeta) buffers_.push_back(b), copies_.push_back(clone(b));
  }
  ~StateRestorer() {
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_grad(grads_[i]);
    for (size_t i = 0; i < buffers_.size(); ++i) copy_(buffers_[i], copies_[i]);
  }
  const std::vector<Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<Tensor> parameters_, grads_, buffers_, copies_;
};

// Returns a tensor with the shape and dtype of x on the Context's device: random, or zeros for integers.
Tensor random_like(const Tensor& x) {
  const TensorOptions options{x.dtype(), Context::current().device};
  return is_floating(x.dtype()) ? randn(x.shape(), options) : zeros(x.shape(), options);
}

}  // namespace

std::vector<StageTimes> sum_over_ranks(std::vector<StageTimes> stages, double divisor) {
  std::vector<double> numbers;
  for (const StageTimes& t : stages)
    for (const auto time : kStageTimes) numbers.push_back(t.*time);
  const Tensor all = tensor(numbers, {int64_t(numbers.size())});
  if (get_world_size() > 1) all_reduce(all);
  numbers = all.to_vector<double>();
  auto number = numbers.begin();
  for (StageTimes& t : stages)
    for (const auto time : kStageTimes) t.*time = *number++ / divisor;
  return stages;
}

StageTimes measure_stage(nn::Module& model, const StageSplit& split, int stage, bool split_backward,
                         const std::function<std::vector<Tensor>()>& forward) {
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>();
  context.recordings.clear();
  const ContextScope in_context(context);
  const StateRestorer restorer(model);
  StageTimes times;
  StageInput input;
  std::vector<Tensor> inputs;  // the received tensors that get a gradient
  for (const StageInputSource& need : split.plan.inputs[stage]) {
    // A source without a call sends no tensor, only the state of the random generator.
    const Tensor x = need.call < 0 ? Tensor() : random_like(split.result(need));
    if (x.defined() && is_floating(x.dtype())) inputs.push_back(x);
    input.received.push_back(x);
    if (x.defined()) times.input_bytes += double(x.nbytes());
  }
  GradManager gm;
  gm.attach(restorer.parameters());
  gm.attach(inputs);
  std::vector<double> forwards, input_gradients, weight_gradients;
  for (int run = 0; run <= kMeasuredRuns; ++run) {
    const double bytes_before = double(memory_stats(context.device).live_bytes), begin = synchronized_time();
    Recording recording = gm.record();
    std::vector<Tensor> roots;
    StageOutput output = run_stage(split.trace, split.plan, stage, input, [&] { roots = forward(); });
    roots.insert(roots.end(), output.sent.begin(), output.sent.end());
    output.sent.clear();
    const double middle = synchronized_time();
    std::erase_if(roots, [](const Tensor& y) { return !y.defined() || !autograd::is_tracked(y); });
    recording.pause();
    std::vector<Tensor> dys;
    for (const Tensor& y : roots) dys.push_back(ones_like(y));
    if (run == 0) times.bytes = std::max(0.0, double(memory_stats(context.device).live_bytes) - bytes_before);
    const double before_backward = synchronized_time();
    double after_inputs = 0;
    if (roots.empty()) {
      recording.release();
    } else if (split_backward) {
      recording.backward_inputs(inputs, std::move(roots), std::move(dys));
      after_inputs = synchronized_time();
      recording.backward_weights();
    } else {
      recording.backward(std::move(roots), std::move(dys));
    }
    const double end = synchronized_time();
    if (run == 0) continue;  // warm-up: creates plans and allocates memory
    forwards.push_back(middle - begin);
    input_gradients.push_back((after_inputs > 0 ? after_inputs : end) - before_backward);
    weight_gradients.push_back(after_inputs > 0 ? end - after_inputs : 0);
  }
  times.forward = median(forwards);
  times.input_gradient = median(input_gradients);
  times.weight_gradient = median(weight_gradients);
  return times;
}

}  // namespace gradus::dist::internal
