// The CUDA implementation of DeviceRuntime (tensor/runtime/device_runtime.h), on the CUDA runtime API:
// devices, memory, streams, events and copies. Handles are cudaStream_t and cudaEvent_t. Thread-safe.
// Functions that allocate, create or synchronize on a device make it the calling thread's current device;
// copies and failed calls may. The runtime registers itself.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/pinned_memory.h"

namespace gradus::cuda {
namespace {

// The lowest compute capability that kernels are compiled for (bazel/cuda.bzl).
constexpr int kLowestMajor = 8;

// Throws CudaError unless the call succeeds.
#define GRADUS_CHECK(call, ...) cuda::check("cuda", #call, call(__VA_ARGS__))
// The same for a call with a stream. The error names the stream's device.
#define GRADUS_CHECK_ON(stream, call, ...) check_on(stream, #call, call(__VA_ARGS__))

// Makes `device` the calling thread's current device.
void use(int device) { GRADUS_CHECK(cudaSetDevice, device); }

void check_on(internal::DeviceRuntime::StreamHandle stream, const char* call, cudaError_t status) {
  if (status == cudaSuccess) [[likely]]
    return;
  int device;
  if (stream && cudaStreamGetDevice(static_cast<cudaStream_t>(stream), &device) == cudaSuccess)
    (void)cudaSetDevice(device);
  throw CudaError("cuda", call, status);
}

std::string version_text(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

class Runtime final : public internal::DeviceRuntime {
 public:
  int device_count() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return count;
    ignore(status);
    int driver = 0;  // 0: no driver
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
      throw DeviceError("cuda", "there is no CUDA device: no NVIDIA driver is installed");
    if (status == cudaErrorInsufficientDriver)
      throw DeviceError("cuda", "there is no CUDA device: the NVIDIA driver is for CUDA ",
                        version_text(driver), ", and this program needs one for CUDA ",
                        version_text(CUDART_VERSION));
    if (status == cudaErrorNoDevice || status == cudaSuccess)
      throw DeviceError("cuda", "there is no CUDA device: the NVIDIA driver finds none");
    throw CudaError("cuda", "cudaGetDeviceCount", status);
  }

  void check(int device) override {
    if (device >= 0 && device < kMaxDevices && usable_[static_cast<size_t>(device)]) return;
    const int count = device_count();
    if (device < 0 || device >= std::min(count, kMaxDevices))
      throw DeviceError("cuda", "cuda:", device, " does not exist: there ",
                        count == 1 ? "is one device" : concat("are ", count, " devices"));
    const internal::DeviceProperties p = properties(device);
    if (p.major < kLowestMajor)
      throw DeviceError("cuda", "cuda:", device, " (", p.name, ") has compute capability ", p.major, '.',
                        p.minor, ", and kernels need ", kLowestMajor, ".0 at least");
    usable_[static_cast<size_t>(device)] = true;
  }

  internal::DeviceProperties properties(int device) override {
    cudaDeviceProp p;
    GRADUS_CHECK(cudaGetDeviceProperties, &p, device);
    return {p.name, static_cast<int64_t>(p.totalGlobalMem), p.major, p.minor, p.multiProcessorCount};
  }

  void make_current(int device) override { use(device); }

  void* allocate(int device, int64_t bytes) override {
    use(device);
    void* p = nullptr;
    if (!or_null("cudaMalloc", cudaMalloc(&p, static_cast<size_t>(bytes)))) return nullptr;
    count_calls(nullptr, {.allocations = 1});
    return p;
  }
  void free(int, void* p) override {
    GRADUS_CHECK(cudaFree, p);
    count_calls(nullptr, {.waits = 1});
  }
  void* allocate_pinned(int device, int64_t bytes) override {
    use(device);
    void* p = nullptr;
    if (!or_null("cudaMallocHost", cudaMallocHost(&p, static_cast<size_t>(bytes)))) return nullptr;
    count_calls(nullptr, {.allocations = 1});
    return p;
  }
  void free_pinned(void* p) override {
    GRADUS_CHECK(cudaFreeHost, p);
    count_calls(nullptr, {.waits = 1});
  }

  StreamHandle create_stream(int device) override {
    use(device);
    cudaStream_t made;
    GRADUS_CHECK(cudaStreamCreateWithFlags, &made, cudaStreamNonBlocking);
    return made;
  }
  void destroy_stream(StreamHandle stream) noexcept override {
    retire_reports(of(stream));
    ignore(cudaStreamDestroy(of(stream)));
  }
  bool is_idle(StreamHandle stream) override {
    return ready("cudaStreamQuery", cudaStreamQuery(of(stream)), stream);
  }
  void synchronize(StreamHandle stream) override {
    GRADUS_CHECK_ON(stream, cudaStreamSynchronize, of(stream));
    count_calls(nullptr, {.waits = 1});
  }
  void synchronize_device(int device) override {
    use(device);
    GRADUS_CHECK(cudaDeviceSynchronize);
    count_calls(nullptr, {.waits = 1});
  }
  void call_on_host(StreamHandle stream, void (*f)(void*), void* data) override {
    GRADUS_CHECK_ON(stream, cudaLaunchHostFunc, of(stream), f, data);
  }

  EventHandle create_event(int device, bool timed) override {
    use(device);
    cudaEvent_t made;
    GRADUS_CHECK(cudaEventCreateWithFlags, &made, timed ? cudaEventDefault : cudaEventDisableTiming);
    return made;
  }
  void destroy_event(EventHandle event) noexcept override { ignore(cudaEventDestroy(event_of(event))); }
  void record(EventHandle event, StreamHandle stream) override {
    GRADUS_CHECK_ON(stream, cudaEventRecord, event_of(event), of(stream));
  }
  void wait(StreamHandle stream, EventHandle event) override {
    GRADUS_CHECK_ON(stream, cudaStreamWaitEvent, of(stream), event_of(event), 0);
  }
  bool is_done(EventHandle event) override {
    return ready("cudaEventQuery", cudaEventQuery(event_of(event)));
  }
  void synchronize_event(EventHandle event) override {
    GRADUS_CHECK(cudaEventSynchronize, event_of(event));
    count_calls(nullptr, {.waits = 1});
  }
  std::optional<double> seconds_between(EventHandle from, EventHandle to) override {
    float ms;
    if (!ready("cudaEventElapsedTime", cudaEventElapsedTime(&ms, event_of(from), event_of(to)))) return {};
    return 1e-3 * static_cast<double>(ms);
  }

  void copy(void* to, const void* from, int64_t bytes, StreamHandle stream) override {
    const cudaPointerAttributes target = attributes_of(to), source = attributes_of(from);
    if (target.type != cudaMemoryTypeDevice || source.type != cudaMemoryTypeDevice) refuse_to_capture(stream);
    if (target.type == cudaMemoryTypeDevice && source.type == cudaMemoryTypeUnregistered) {
      use(target.device);
      return copy_through_pinned(to, target.device, from, bytes, stream);
    }
    GRADUS_CHECK_ON(stream, cudaMemcpyAsync, to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                    of(stream));
    if (target.type == source.type)
      count_calls(nullptr, {.copies_on_device = 1, .bytes_on_device = bytes});
    else if (target.type == cudaMemoryTypeDevice)
      count_calls(nullptr, {.copies_to_device = 1, .bytes_to_device = bytes});
    else
      count_calls(nullptr, {.copies_to_host = 1,
                            .bytes_to_host = bytes,
                            .pageable_copies = target.type == cudaMemoryTypeUnregistered});
  }
  void copy_between(void* to, int to_device, const void* from, int from_device, int64_t bytes,
                    StreamHandle stream) override {
    enable_peer_access(from_device, to_device);
    GRADUS_CHECK_ON(stream, cudaMemcpyPeerAsync, to, to_device, from, from_device, static_cast<size_t>(bytes),
                    of(stream));
    count_calls(nullptr, {.copies_on_device = 1, .bytes_on_device = bytes});
  }

  // A relaxed capture leaves other threads, and allocations of this one, alone.
  void begin_capture(StreamHandle stream) override {
    GRADUS_CHECK_ON(stream, cudaStreamBeginCapture, of(stream), cudaStreamCaptureModeRelaxed);
  }
  GraphHandle end_capture(StreamHandle stream) override {
    cudaGraph_t graph;
    GRADUS_CHECK_ON(stream, cudaStreamEndCapture, of(stream), &graph);
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    ignore(cudaGraphDestroy(graph));
    check_on(stream, "cudaGraphInstantiate", status);
    return executable;
  }
  void launch(GraphHandle graph, StreamHandle stream) override {
    GRADUS_CHECK_ON(stream, cudaGraphLaunch, static_cast<cudaGraphExec_t>(graph), of(stream));
    count_calls(nullptr, {.launches = 1});
  }
  void destroy_graph(GraphHandle graph) noexcept override {
    ignore(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
  }

  void throw_kernel_errors(StreamHandle stream) override { cuda::throw_kernel_errors(of(stream)); }
  void throw_kernel_errors_on_device(int device) override { cuda::throw_kernel_errors_on_device(device); }

 private:
  static constexpr int kMaxDevices = 64;
  static constexpr int64_t kMaxOfACopy = int64_t(64) << 20;  // bytes that are pinned at once

  static cudaStream_t of(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
  static cudaEvent_t event_of(EventHandle event) { return static_cast<cudaEvent_t>(event); }

  static cudaPointerAttributes attributes_of(const void* p) {
    cudaPointerAttributes attributes;
    GRADUS_CHECK(cudaPointerGetAttributes, &attributes, p);
    return attributes;
  }

  // Throws StateError if the stream is captured: its graph would name memory of the host that has other contents,
  // or none, at a launch.
  static void refuse_to_capture(StreamHandle stream) {
    cudaStreamCaptureStatus status;
    GRADUS_CHECK_ON(stream, cudaStreamIsCapturing, of(stream), &status);
    if (status != cudaStreamCaptureStatusNone)
      throw StateError("copy", "cannot be captured: it copies between host and device");
  }

  // Lets copies of `device` access the memory of `peer` directly. Else the driver copies through the host.
  void enable_peer_access(int device, int peer) {
    auto& is_done = peers_[static_cast<size_t>(device)][static_cast<size_t>(peer)];
    if (is_done) return;
    int is_possible = 0;
    GRADUS_CHECK(cudaDeviceCanAccessPeer, &is_possible, device, peer);
    if (is_possible) {
      use(device);
      const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
      // Another thread or library has enabled it, or the system allows no more peers.
      if (status != cudaErrorPeerAccessAlreadyEnabled && status != cudaErrorTooManyPeers)
        cuda::check("cuda", "cudaDeviceEnablePeerAccess", status);
      ignore(status);
    }
    is_done = true;
  }

  // Copies from pageable host memory, for which cudaMemcpyAsync may block the host: through pinned blocks of
  // at most kMaxOfACopy bytes, or directly if pinned memory is short.
  static void copy_through_pinned(void* to, int device, const void* from, int64_t bytes,
                                  StreamHandle stream) {
    auto& memory = internal::PinnedMemory::of({DeviceType::kCUDA, static_cast<int16_t>(device)});
    const auto release = [&](void* p) { memory.release(p); };
    for (int64_t at = 0, piece; at < bytes; at += piece) {
      piece = std::min(bytes - at, kMaxOfACopy);
      const std::unique_ptr<void, decltype(release)> block(memory.allocate(device, piece), release);
      const void* source = static_cast<const char*>(from) + at;
      if (block) source = std::memcpy(block.get(), source, static_cast<size_t>(piece));
      GRADUS_CHECK_ON(stream, cudaMemcpyAsync, static_cast<char*>(to) + at, source,
                      static_cast<size_t>(piece), cudaMemcpyHostToDevice, of(stream));
      if (block) memory.record_use(block.get(), stream);
      count_calls(nullptr, {.copies_to_device = 1, .bytes_to_device = piece, .pageable_copies = !block});
    }
  }

  // Clears the last error, so that a later cudaGetLastError does not return it.
  static void ignore(cudaError_t status) {
    if (status != cudaSuccess) (void)cudaGetLastError();
  }
  // Returns false if memory is short, true on success. Throws CudaError otherwise.
  static bool or_null(const char* call, cudaError_t status) {
    if (status != cudaErrorMemoryAllocation) cuda::check("cuda", call, status);
    ignore(status);
    return status == cudaSuccess;
  }
  // Returns false for cudaErrorNotReady, true on success. Throws CudaError otherwise.
  static bool ready(const char* call, cudaError_t status, StreamHandle stream = nullptr) {
    if (status != cudaErrorNotReady) check_on(stream, call, status);
    return status == cudaSuccess;
  }

  std::array<std::atomic<bool>, kMaxDevices> usable_{};
  // peers_[device][peer]: whether enable_peer_access has run.
  std::array<std::array<std::atomic<bool>, kMaxDevices>, kMaxDevices> peers_{};
};

#undef GRADUS_CHECK_ON
#undef GRADUS_CHECK

constinit Runtime runtime;
[[maybe_unused]] const bool is_set = (internal::register_device_runtime(DeviceType::kCUDA, &runtime), true);

}  // namespace
}  // namespace gradus::cuda
