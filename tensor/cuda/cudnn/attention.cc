// attend(): runs fused attention by cuDNN. Each device has an LRU cache of plans by dtype, pass, shapes and strides.
#include "gradus/tensor/cuda/cudnn/attention.h"

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "gradus/tensor/base/lru_cache.h"
#include "gradus/tensor/cuda/cudnn/attention_graph.h"
#include "gradus/tensor/cuda/cudnn/graph_parts.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::cuda {
namespace {

constexpr size_t kMaxPlans = 256;
constexpr int64_t kMaxHead = 128, kMinQueries = 64, kKeys = 128, kMaxBatch = 65535, kMinVersion = 91600;
constexpr int64_t kMaxElements = int64_t(1) << 31, kMaxWorkspace = int64_t(1) << 30;

struct Plan {
  Descriptor plan;  // none: cuDNN has no plan
  int64_t workspace = 0;
};
using Key = std::vector<int64_t>;

// Everything that a plan depends on.
Key key_of(const FusedAttention& a) {
  Key key{a.is_backward, a.causal, static_cast<int64_t>(a.q.dtype())};
  for (const Tensor* t : {&a.q, &a.k, &a.v, &a.y, &a.dy, &a.dq, &a.dk, &a.dv}) {
    if (!*t) continue;
    key.insert(key.end(), t->shape().begin(), t->shape().end());
    key.insert(key.end(), t->strides().begin(), t->strides().end());
  }
  return key;
}

NamedTensors named(const FusedAttention& a) { return {{{"q", &a.q}, {"k", &a.k}, {"v", &a.v}, {"y", &a.y}}}; }

// The state of one device; never destroyed. Only one thread at a time may use a handle.
struct DeviceState {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;  // created on first use
  LruCache<Key, std::shared_ptr<const Plan>> plans{kMaxPlans};
  std::set<std::shared_ptr<const Plan>> captured;  // in graphs, which launch the plans' kernels later
};
DeviceState& state_of(int device) {
  static auto& mutex = *new std::mutex;
  static auto& states = *new std::map<int, DeviceState>;
  const std::lock_guard lock(mutex);
  return states[device];
}

// Calls f(configuration) for the engines that sum in f32, the best first, until it returns true.
template <class F>
void for_each_engine(const Calls& calls, const Descriptor& graph, cudnnBackendDescriptor_t properties,
                     F&& f) {
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : recommended_configurations(calls, graph, mode, properties)) {
      bool sums_in_f32 = true;
      for (const auto note : calls.list<cudnnBackendNumericalNote_t>(engine_of(calls, configuration),
                                                                     CUDNN_ATTR_ENGINE_NUMERICAL_NOTE))
        sums_in_f32 = sums_in_f32 && note != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
      if (sums_in_f32 && f(configuration)) return;
    }
  }
}

// Returns the cached plan, or makes one. The caller has locked state.mutex.
std::shared_ptr<const Plan> plan_of(const Calls& calls, const FusedAttention& a, DeviceState& state) {
  const Key key = key_of(a);
  if (auto known = state.plans.find(key)) return known;
  auto made = std::make_shared<Plan>();
  calls.make_handle(&state.handle);
  calls.check("cudnnSetStream",
              calls.library().cudnnSetStream(state.handle, nullptr));  // the last one may be gone
  const auto make = [&](const Descriptor& configuration) {
    try {
      Descriptor plan = plan_of_configuration(calls, configuration, state.handle, nullptr);
      if (!plan) return false;
      const auto workspace = calls.value<int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      if (workspace > kMaxWorkspace) return false;
      *made = {std::move(plan), workspace};
      return true;
    } catch (const CudnnError&) {  // the kernel does not compile, or the driver cannot load it
      return false;
    }
  };
  for_each_engine(calls, make_attention_graph(calls, a, state.handle), nullptr, make);
  return state.plans.insert(key, std::move(made));
}

bool is_supported(const Tensor& t) {
  for (int d = 0; d < t.dim() - 1; ++d)
    if (t.size(d) > 1 && (t.stride(d) <= 0 || t.stride(d) % 8 != 0)) return false;
  return t.numel() > 0 && t.stride(-1) == 1 && t.size(-1) % 8 == 0 && t.size(-1) <= kMaxHead &&
         t.size(0) <= kMaxBatch && t.size(1) <= kMaxBatch && t.numel() < kMaxElements &&
         reinterpret_cast<uintptr_t>(t.raw_ptr()) % 16 == 0;
}

}  // namespace

bool fits_fused_attention(const FusedAttention& a) {
  if (size_of(a.q.dtype()) != 2 || !(a.scale > 0)) return false;
  if (a.q.size(2) < kMinQueries || a.k.size(2) % kKeys != 0) return false;
  for (const Tensor* t : {&a.q, &a.k, &a.v, &a.y, &a.dy, &a.dq, &a.dk, &a.dv})
    if (*t && !is_supported(*t)) return false;
  return true;
}

bool has_attention_plan(const char* op, const FusedAttention& a) {
  static std::atomic<bool> is_missing{false};
  if (is_missing) return false;
  const Cudnn* library = nullptr;
  try {
    library = &cudnn(op);
  } catch (const DeviceError&) {
    is_missing = true;
    return false;
  }
  if (static_cast<int64_t>(library->cudnnGetVersion()) < kMinVersion) return false;
  DeviceState& state = state_of(a.q.device().index);
  const std::lock_guard lock(state.mutex);
  return plan_of(Calls(op, *library, named(a)), a, state)->plan.exists();
}

void attend(const char* op, const FusedAttention& a, cudaStream_t stream) {
  const Cudnn& library = cudnn(op);
  const Calls calls(op, library, named(a));
  DeviceState& state = state_of(a.q.device().index);
  const std::lock_guard lock(state.mutex);
  const std::shared_ptr<const Plan> plan = plan_of(calls, a, state);
  if (!plan->plan) throw StateError(op, "cuDNN has no plan for q ", describe(a.q), ", k ", describe(a.k));
  const auto scratch = [&](const Shape& shape, DType dtype) { return empty(shape, {dtype, a.q.device()}); };
  float scale = static_cast<float>(a.scale), masked_score = std::numeric_limits<float>::lowest(), one = 1;
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  const auto give = [&](int64_t id, void* p) { ids.push_back(id), pointers.push_back(p); };
  give(kAttentionQ, a.q.raw_ptr()), give(kAttentionK, a.k.raw_ptr()), give(kAttentionV, a.v.raw_ptr());
  give(kAttentionY, a.y.raw_ptr()), give(kLogsumexp, a.logsumexp.raw_ptr());
  give(kScale, &scale);
  if (a.causal) give(kMaskedScore, &masked_score);
  Tensor dy_dot_y, dq_sum, workspace;
  if (a.is_backward) {
    dy_dot_y = scratch(a.logsumexp.shape(), DType::kF32), dq_sum = scratch(a.q.shape(), DType::kF32);
    give(kAttentionDy, a.dy.raw_ptr()), give(kAttentionDq, a.dq.raw_ptr());
    give(kAttentionDk, a.dk.raw_ptr()), give(kAttentionDv, a.dv.raw_ptr());
    give(kDyDotY, dy_dot_y.raw_ptr()), give(kDqSum, dq_sum.raw_ptr()), give(kOne, &one);
  }
  if (plan->workspace > 0) workspace = scratch({plan->workspace}, DType::kU8);
  const Descriptor pack = calls.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  calls.set<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids));
  calls.set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers));
  calls.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
            workspace ? workspace.raw_ptr() : static_cast<void*>(nullptr));
  calls.finalize(pack);
  calls.check("cudnnSetStream", library.cudnnSetStream(state.handle, stream));
  calls.check("cudnnBackendExecute", library.cudnnBackendExecute(state.handle, plan->plan, pack));
  count_calls(op, {.library_calls = 1});
  if (internal::current_native_stream(a.q.device())->is_capturing()) state.captured.insert(plan);
}

int64_t count_attention_engines(const char* op, const Cudnn& library, const FusedAttention& a,
                                cudnnBackendDescriptor_t properties) {
  const Calls calls(op, library, named(a));
  int64_t engines = 0;
  for_each_engine(calls, make_attention_graph(calls, a, nullptr), properties,
                  [&](const Descriptor&) { return ++engines, false; });
  return engines;
}

}  // namespace gradus::cuda
