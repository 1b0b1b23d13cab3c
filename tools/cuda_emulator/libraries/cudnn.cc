// Entry points of the emulated cuDNN backend API, and executions of plans, which are checked and queued on a
// stream. Statuses are those of the documentation and of an H100 (tests/cudnn_answers.txt).
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/cudnn/cudnn_functions.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/libraries/cudnn_descriptors.h"

namespace gradus::cuda::emulated {
namespace {

// Runs f with the runtime's lock, unless a test injected a failure (fail_call).
template <class F> cudnnStatus_t host_call(F&& f, const char* function = __builtin_FUNCTION()) {
  const auto lock = Runtime::get().lock();
  if (const int status = injected_failure(function, CUDNN_STATUS_INTERNAL_ERROR))
    return refuse(static_cast<cudnnStatus_t>(status), "a test wants it");
  return f();
}
// The same for calls that also fail after an error of the device, and in host functions.
template <class F>
cudnnStatus_t device_call(cudnnStatus_t failure, F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return failure;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (runtime.sticky != cudaSuccess) return refuse(failure, "the device has failed");
  if (const int status = injected_failure(function, failure))
    return refuse(static_cast<cudnnStatus_t>(status), "a test wants it");
  return f(runtime);
}

bool is_aligned(const void* p, int64_t to) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(to) == 0;
}

constexpr int64_t kWorkspaceAlignment = 16;

// Returns the pattern with which an execution fills its workspace, different for each one.
uint64_t next_stamp() {
  static uint64_t executions = 0;
  return ++executions * 0x9E3779B97F4A7C15u;
}

// The state of set_times() and last_executed().
struct Executions {
  std::function<double(const Configuration&)> seconds_of;
  Configuration last;
};
Executions& executions() {
  static auto& all = *new Executions;
  return all;
}

// Checks the arguments of an execution, and gathers them in q.
cudnnStatus_t collect(QueuedExecution& q, const Descriptor& plan, const Descriptor& pack) {
  GRADUS_REFUSE_UNLESS(plan.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plan.finalized,
                       CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  GRADUS_REFUSE_UNLESS(pack.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && pack.finalized,
                       CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  const Configuration& configuration = plan.configurations[0];
  q.convolution = plan.convolution, q.attention = plan.attention, q.engine = configuration.engine;
  q.call = {"cudnnBackendExecute", gradus::internal::called_op};
  const auto ids = pack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (const GraphTensor* t : q.attention ? q.attention->tensors() : q.convolution->tensors()) {
    const auto found = std::find(ids.begin(), ids.end(), t->id);
    GRADUS_NEED(found != ids.end());
    void* const p = pointers[static_cast<size_t>(found - ids.begin())];
    GRADUS_NEED(p != nullptr);
    GRADUS_REFUSE_UNLESS(t->is_by_value || is_aligned(p, t->alignment),
                         CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    q.pointers.push_back(p);
    if (t->is_by_value) q.numbers[t->id] = *static_cast<const float*>(p);
  }
  GRADUS_NEED(ids.size() == q.pointers.size());
  void* const workspace = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  const size_t bytes = configuration.workspace();
  GRADUS_NEED(bytes == 0 || workspace != nullptr);
  GRADUS_REFUSE_UNLESS(bytes == 0 || is_aligned(workspace, kWorkspaceAlignment),
                       CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  q.workspace = {workspace, bytes, bytes, next_stamp()};
  q.seconds = executions().seconds_of ? executions().seconds_of(configuration) : 0;
  executions().last = configuration;
  return CUDNN_STATUS_SUCCESS;
}

// The end of an execution, which began by filling its workspace: checks that this is unchanged, and computes. A fault is
// delivered and ends it.
void end_execution(const QueuedExecution& q) {
  try {
    if (q.workspace.needed > 0 && !check_unchanged(q.call, q.workspace)) return;
    q.attention ? compute_attention(q) : compute_convolution(q);
  } catch (const Stop&) {
  }
}

}  // namespace

void set_times(std::function<double(const Configuration&)> seconds_of) {
  const auto lock = Runtime::get().lock();
  executions().seconds_of = std::move(seconds_of);
}
Configuration last_executed() {
  const auto lock = Runtime::get().lock();
  return executions().last;
}

}  // namespace gradus::cuda::emulated

using namespace gradus::cuda::emulated;  // NOLINT

extern "C" {

size_t CUDNNWINAPI cudnnGetVersion() { return 91900; }

const char* CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t status) {
#define GRADUS_STATUS(name) \
  case name:                \
    return #name;
  switch (static_cast<int>(status)) {
    GRADUS_STATUS(CUDNN_STATUS_SUCCESS)
    GRADUS_STATUS(CUDNN_STATUS_NOT_INITIALIZED)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE)
    GRADUS_STATUS(CUDNN_STATUS_NOT_SUPPORTED)
    GRADUS_STATUS(CUDNN_STATUS_NOT_SUPPORTED_SHAPE)
    GRADUS_STATUS(CUDNN_STATUS_INTERNAL_ERROR)
    GRADUS_STATUS(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED)
    GRADUS_STATUS(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    GRADUS_STATUS(CUDNN_STATUS_EXECUTION_FAILED)
    default:
      return "CUDNN_STATUS_UNKNOWN";
  }
#undef GRADUS_STATUS
}

// Copies the text of the thread's last failure, and clears it.
void CUDNNWINAPI cudnnGetLastErrorString(char* to, size_t room) {
  if (room == 0) return;
  to[reason.copy(to, room - 1)] = '\0';
  reason.clear();
}

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* handle) {
  return device_call(CUDNN_STATUS_NOT_INITIALIZED, [&](Runtime&) {
    GRADUS_REFUSE_UNLESS(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    *handle = new cudnnContext{current_device};
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return device_call(CUDNN_STATUS_EXECUTION_FAILED, [&](Runtime& runtime) {
    GRADUS_NEED(handle != nullptr);
    if (stream && runtime.stream(stream)->device != handle->device)
      return fault("cudnnSetStream", "the stream is another device's than the handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t* made) {
  return host_call([&] {
    if (!made) return fault("cudnnBackendCreateDescriptor", "a null result crashes");
    GRADUS_REFUSE_UNLESS(is_emulated(type), CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    auto d = std::make_shared<Descriptor>(Descriptor{type});
    *made = d.get();
    descriptors().emplace(d.get(), std::move(d));
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  const auto lock = Runtime::get().lock();
  GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  if (descriptors().erase(d) == 0)
    return fault("cudnnBackendDestroyDescriptor", "a descriptor that was destroyed, or never made");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void* from) {
  return host_call([&] {
    GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const auto found = find_descriptor("cudnnBackendSetAttribute", d);
    return found ? set(*found, name, type, count, from) : CUDNN_STATUS_BAD_PARAM;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t room,
                                                   int64_t* count, void* to) {
  return host_call([&] {
    GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const auto found = find_descriptor("cudnnBackendGetAttribute", d);
    return found ? get(*found, name, type, room, count, to) : CUDNN_STATUS_BAD_PARAM;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  return host_call([&] {
    GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const auto found = find_descriptor("cudnnBackendFinalize", d);
    if (!found) return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t status = finalize(*found);
    found->finalized |= status == CUDNN_STATUS_SUCCESS;
    return status;
  });
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack) {
  return device_call(CUDNN_STATUS_EXECUTION_FAILED, [&](Runtime& runtime) {
    GRADUS_NEED(handle != nullptr && plan != nullptr && pack != nullptr);
    const auto p = find_descriptor("cudnnBackendExecute", plan),
               arguments = find_descriptor("cudnnBackendExecute", pack);
    GRADUS_NEED(p && arguments);
    if (handle->device != current_device || (p->finalized && p->device != current_device))
      return fault("cudnnBackendExecute", "the handle or the plan is another device's than the thread's");
    auto q = std::make_shared<QueuedExecution>();
    if (const cudnnStatus_t status = collect(*q, *p, *arguments); status != CUDNN_STATUS_SUCCESS)
      return status;
    static uint64_t executions = 0;
    const bool may_differ = q->engine->has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ||
                            (q->attention && q->attention->is_backward());  // whose engines have no such note
    q->backwards = may_differ && ++executions % 2 == 0;
    const cudaStream_t stream = runtime.stream(handle->stream);
    if (runtime.captures.check_work(stream) != cudaSuccess)
      return refuse(CUDNN_STATUS_EXECUTION_FAILED, "the stream's capture forbids it");
    // Other streams' work may run between the two halves.
    if (q->workspace.needed > 0) runtime.enqueue(stream, {[q] { fill(q->call, q->workspace); }});
    runtime.enqueue(stream, {[q, &runtime] {
                      end_execution(*q);
                      runtime.seconds_ahead += q->seconds;
                    }});
    return CUDNN_STATUS_SUCCESS;
  });
}

}  // extern "C"

namespace gradus::cuda {

const Cudnn& cudnn(const char*) {
#define GRADUS_FUNCTION(name) &::name,
  static constexpr Cudnn functions{GRADUS_CUDNN_FUNCTIONS(GRADUS_FUNCTION)};
#undef GRADUS_FUNCTION
  return functions;
}

}  // namespace gradus::cuda
