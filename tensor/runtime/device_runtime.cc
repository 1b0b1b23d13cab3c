// Registry of device runtimes by device type, and the public queries about GPUs. Remembers the process that
// has used a device, because CUDA cannot be used in a child of fork() after its parent initialized CUDA.
#include "gradus/tensor/runtime/device_runtime.h"

#include <array>
#include <atomic>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus {
namespace internal {
namespace {

constinit std::array<std::atomic<DeviceRuntime*>, 3> runtimes{};  // by device type

std::atomic<DeviceRuntime*>& slot(DeviceType type) { return runtimes[static_cast<size_t>(type)]; }

std::atomic<int> user_process = -1;  // fork_count() of the process that uses devices; -1: none yet

// Throws if a parent process has used devices.
void check_process(Device device, const char* op) {
  if (user_process >= 0 && user_process != fork_count())
    throw StateError(op, device, " belongs to the process that this one is a fork() of: compute on the CPU");
}

}  // namespace

DeviceRuntime* find_device_runtime(DeviceType type) noexcept { return slot(type); }
void register_device_runtime(DeviceType type, DeviceRuntime* runtime) { slot(type) = runtime; }

DeviceRuntime& runtime_of(Device device, const char* op) {
  DeviceRuntime* const runtime = find_device_runtime(device.type);
  if (!runtime)
    throw DeviceError(
        op, device,
        " cannot be used: this program was built without CUDA. In the source tree of Gradus, `./run PROGRAM` "
        "builds it with CUDA if there are a GPU's driver and a CUDA toolkit, which tools/cuda-toolkit.sh "
        "fetches (docs/cuda.md); a library from `./run install` computes on CPUs alone");
  check_process(device, op);
  runtime->check(device.index);
  user_process = fork_count();
  return *runtime;
}

std::shared_ptr<NativeStream> current_native_stream(Device device) {
  return native_stream(current_stream(device));
}

}  // namespace internal

int cuda_device_count() {
  internal::DeviceRuntime* const runtime = internal::find_device_runtime(DeviceType::kCUDA);
  if (!runtime) return 0;
  internal::check_process(DeviceType::kCUDA, "cuda_device_count");
  try {
    const int count = runtime->device_count();
    internal::user_process = internal::fork_count();
    return count;
  } catch (const DeviceError&) {
    return 0;
  }
}

DeviceProperties device_properties(Device device) {
  if (device.type != DeviceType::kCUDA)
    throw DeviceError("device_properties", "expected a CUDA device, got ", device);
  return internal::runtime_of(device, "device_properties").properties(device.index);
}

}  // namespace gradus
