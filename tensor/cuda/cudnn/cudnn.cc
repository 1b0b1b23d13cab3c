// convolve(): runs convolutions and their gradients by cuDNN's backend API. Each device has an LRU cache of
// execution plans by dtype, shapes, geometry and alignments. A missing plan is made from the engine that was
// chosen earlier for the same convolution and GPU model (ConvChoiceCache, in memory), else from cuDNN's heuristic.
// With set_cudnn_benchmark(true), the heuristic's first kMaxCandidates plans are timed, and the fastest is chosen;
// within a stream capture, which cannot wait, the heuristic's first.
// Thread-safe. A failed cuDNN call throws CudnnError.
#include "gradus/tensor/cuda/cudnn/cudnn.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gradus/tensor/cuda/cudnn/conv_graph.h"
#include "gradus/tensor/cuda/cudnn/conv_plans.h"
#include "gradus/tensor/cuda/cudnn/cudnn_calls.h"
#include "gradus/tensor/cuda/cudnn/plan_cache.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::cuda {
namespace {

using raw::ConvGeometry;

// Plans in a device's cache. The training of a ResNet-50 needs about 70.
constexpr size_t kMaxPlans = 1024;

// Plans of one convolution that are timed if set_cudnn_benchmark is on.
constexpr size_t kMaxCandidates = 8;

std::atomic<bool> benchmark{false};

// Returns the plan cache's key: everything that a plan depends on.
ConvKey key_of(const Convolution& c) {
  const ConvGeometry& g = c.geometry;
  ConvKey key{.pass = c.pass,
              .dtype = c.x.dtype(),
              .tf32 = c.tf32 && c.x.dtype() == DType::kF32,
              .relu = c.relu,
              .deterministic = c.deterministic,
              .x = c.x.shape(),
              .w = c.w.shape(),
              .stride = g.stride,
              .padding = g.padding,
              .dilation = g.dilation,
              .alignments = {}};
  for (const Tensor* t : {&c.x, &c.w, &c.y, &c.bias}) key.alignments.push_back(*t ? alignment(*t) : 0);
  return key;
}

// The state of one device; never destroyed. Only one thread at a time may use a handle or execute a plan. Making a
// plan takes up to a second, so plans are made with a second handle (planner) while other threads execute their plans.
struct DeviceState {
  // Guards runner, and the execution of cached plans.
  std::mutex running;
  cudnnHandle_t runner = nullptr, planner = nullptr;  // created on first use
  std::optional<DeviceModel> model;  // like planner, used only by the thread that makes a plan
  PlanCache plans{kMaxPlans};        // lets one thread at a time make a plan
};
// The states of all devices.
struct States {
  std::mutex mutex;
  std::map<int, DeviceState> by_device;
};
States& states() {
  static auto& all = *new States;
  return all;
}
DeviceState& state_of(int device) {
  const std::lock_guard lock(states().mutex);
  return states().by_device[device];
}

// The arguments of one execution: the workspace, and the variant pack with the tensors' addresses.
struct Arguments {
  Tensor workspace;
  Descriptor pack;
};
Arguments make_arguments(const Calls& calls, const Convolution& c, const ConvPlan& plan) {
  Tensor workspace;
  if (plan.workspace > 0) workspace = empty({plan.workspace}, {DType::kU8, c.x.device()});
  std::vector<int64_t> ids{kX, kW, kY};
  std::vector<void*> pointers{c.x.raw_ptr(), c.w.raw_ptr(), c.y.raw_ptr()};
  if (c.bias) ids.push_back(kBias), pointers.push_back(c.bias.raw_ptr());
  Descriptor pack = calls.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  calls.set<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids));
  calls.set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers));
  calls.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
            workspace ? workspace.raw_ptr() : static_cast<void*>(nullptr));
  calls.finalize(pack);
  return {std::move(workspace), std::move(pack)};
}

void set_stream(const Calls& calls, cudnnHandle_t handle, cudaStream_t stream) {
  calls.check("cudnnSetStream", calls.library().cudnnSetStream(handle, stream));
}
void execute(const char* op, const Calls& calls, const ConvPlan& plan, const Arguments& arguments,
             cudnnHandle_t handle) {
  calls.check("cudnnBackendExecute", calls.library().cudnnBackendExecute(handle, plan.plan, arguments.pack));
  count_calls(op, {.library_calls = 1});
}

// Events before and after each timed execution of a plan. The first execution, which loads kernels, is not timed.
// Returns no events if an execution fails.
using Events = std::vector<std::unique_ptr<internal::NativeEvent>>;
Events time_plan(const char* op, const Calls& calls, const Convolution& c, const ConvPlan& plan,
                 cudnnHandle_t handle, internal::NativeStream& stream) {
  constexpr int kTimedExecutions = 3;
  try {
    const Arguments arguments = make_arguments(calls, c, plan);
    Events events;
    for (int i = 0; i <= kTimedExecutions; ++i) {
      execute(op, calls, plan, arguments, handle);
      events.push_back(std::make_unique<internal::NativeEvent>(stream.runtime(), stream.device().index,
                                                               /*timed=*/true));
      stream.record(*events.back());
    }
    return events;
  } catch (const DeviceFailure&) {
    return {};
  }
}

// Returns the fastest plan; the first if there is only one or if all fail. Runs every plan on the operands of c,
// which overwrites the result: the caller executes the returned plan once more. The host waits for the stream once.
// Errors: CudaError if the device fails.
ConvPlan fastest(const char* op, const Calls& calls, const Convolution& c, std::vector<ConvPlan> plans,
                 cudnnHandle_t handle, cudaStream_t stream) {
  if (plans.size() == 1) return std::move(plans[0]);
  set_stream(calls, handle, stream);
  const std::shared_ptr<internal::NativeStream> native = internal::current_native_stream(c.x.device());
  std::vector<Events> events;
  for (const ConvPlan& plan : plans) events.push_back(time_plan(op, calls, c, plan, handle, *native));
  const auto last = std::find_if(events.rbegin(), events.rend(), [](const Events& e) { return !e.empty(); });
  if (last != events.rend()) last->back()->synchronize();
  size_t fastest = 0;
  double min_seconds = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < plans.size(); ++i)
    for (size_t k = 1; k < events[i].size(); ++k)
      if (const auto seconds = events[i][k]->seconds_since(*events[i][k - 1]);
          seconds && *seconds < min_seconds)
        min_seconds = *seconds, fastest = i;
  return std::move(plans[fastest]);
}

// Returns a plan by the kept choice if cuDNN still accepts the choice. Otherwise chooses anew, and keeps the new
// choice. Returns a ConvPlan without a plan if cuDNN has none for this convolution.
ConvPlan make_plan(const char* op, const Calls& calls, const Convolution& c, const ConvKey& key,
                   DeviceState& state, cudaStream_t stream) {
  calls.make_handle(&state.planner);
  if (!state.model) state.model = model_of(c.x.device());
  const std::optional<ConvChoice> kept = ConvChoiceCache::get().find(*state.model, key);
  if (kept)
    if (ConvPlan p = plan_of_choice(op, calls.library(), c, *kept, state.planner, nullptr); p.plan) return p;
  const bool times = uses_cudnn_benchmark() && !internal::current_native_stream(c.x.device())->is_capturing();
  std::vector<ConvPlan> plans =
      recommended_plans(op, calls.library(), c, state.planner, nullptr, times ? kMaxCandidates : 1);
  if (plans.empty()) return {};
  ConvPlan p = fastest(op, calls, c, std::move(plans), state.planner, stream);
  ConvChoiceCache::get().replace(*state.model, key, kept, p.choice);
  return p;
}

}  // namespace

void clear_plan_caches() {
  std::vector<DeviceState*> all;
  {
    const std::lock_guard lock(states().mutex);
    for (auto& [device, state] : states().by_device) all.push_back(&state);
  }
  for (DeviceState* state : all) state->plans.clear();
}

void set_cudnn_benchmark(bool on) { benchmark = on; }
bool uses_cudnn_benchmark() { return benchmark; }

bool convolve(const char* op, const Convolution& c, cudaStream_t stream) {
  const Cudnn& library = cudnn(op);
  const Calls calls(op, library, named(c));
  DeviceState& state = state_of(c.x.device().index);
  const ConvKey key = key_of(c);
  const PlanCache::Plan plan =
      state.plans.get(key, [&] { return make_plan(op, calls, c, key, state, stream); });
  if (!plan->plan) return false;
  const Arguments arguments = make_arguments(calls, c, *plan);
  const std::lock_guard lock(state.running);
  calls.make_handle(&state.runner);
  set_stream(calls, state.runner, stream);
  execute(op, calls, *plan, arguments, state.runner);
  return true;
}

}  // namespace gradus::cuda
