// Device functions of the emulated CUDA runtime: selection, properties, peer access. Properties are those of
// the H100 in tools/gpu_lab/records, except for the size of memory and values that tests set. With an
// outdated or missing driver, calls fail with the statuses of NVIDIA's runtime.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "gradus/tools/cuda_emulator/block.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"

namespace gradus::cuda::emulated {
namespace {

struct Capability {
  int major = 9, minor = 0;
};
int driver_version = CUDART_VERSION;
std::map<int, Capability>& capabilities() {  // those that were set
  static auto& all = *new std::map<int, Capability>;
  return all;
}
Capability capability_of(int device) {
  const auto found = capabilities().find(device);
  return found == capabilities().end() ? Capability() : found->second;
}

}  // namespace

void set_driver_version(int version) {
  const auto lock = Runtime::get().lock();
  driver_version = version;
}
void set_compute_capability(int device, int major, int minor) {
  const auto lock = Runtime::get().lock();
  capabilities()[device] = {major, minor};
}
bool is_driver_old() { return driver_version < CUDART_VERSION; }
bool may_run_kernels(int device) { return capability_of(device).major >= 8; }

namespace {

cudaDeviceProp properties(int device) {
  cudaDeviceProp p{};
  std::strcpy(p.name, "Gradus emulated device");
  p.totalGlobalMem = memory_of(device)->size();
  p.sharedMemPerBlock = 49152;
  p.sharedMemPerBlockOptin = static_cast<size_t>(kMaxSharedBytes);
  p.sharedMemPerMultiprocessor = 233472;
  p.reservedSharedMemPerBlock = 1024;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = kLanes;
  p.maxThreadsPerBlock = kMaxThreads;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = capability_of(device).major, p.minor = capability_of(device).minor;
  p.multiProcessorCount = 132;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.l2CacheSize = 52428800;
  p.memoryBusWidth = 5120;
  p.unifiedAddressing = p.canMapHostMemory = p.concurrentKernels = p.streamPrioritiesSupported = 1;
  p.asyncEngineCount = 3;
  // Each process has GPUs of its own (libraries/nccl.cc).
  const int id[2] = {std::getenv("GRADUS_EMULATED_SHARED_GPUS") ? 0 : getpid(), device};
  std::memcpy(p.uuid.bytes, id, sizeof id);
  return p;
}

}  // namespace
}  // namespace gradus::cuda::emulated

using namespace gradus::cuda::emulated;  // NOLINT

extern "C" {

cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  return call_about_devices([&](Runtime&) { return *version = driver_version, cudaSuccess; });
}
cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  return call_about_devices(
      [&](Runtime&) { return count ? (*count = device_count(), cudaSuccess) : cudaErrorInvalidValue; });
}
cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return call_about_devices([&](Runtime&) {
    if (!memory_of(device)) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return call_always([&](Runtime&) {
    if (is_driver_old()) return cudaErrorInsufficientDriver;
    return device ? (*device = current_device, cudaSuccess) : cudaErrorInvalidValue;
  });
}
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  return call_about_devices([&](Runtime&) {
    if (!memory_of(device)) return cudaErrorInvalidDevice;
    if (!p) return cudaErrorInvalidValue;
    *p = properties(device);
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&](Runtime&) {
    if (!memory_of(device)) return cudaErrorInvalidDevice;
    const cudaDeviceProp p = properties(device);
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
        return *value = p.maxThreadsPerBlock, cudaSuccess;
      case cudaDevAttrMultiProcessorCount:
        return *value = p.multiProcessorCount, cudaSuccess;
      case cudaDevAttrWarpSize:
        return *value = p.warpSize, cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        return *value = p.major, cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        return *value = p.minor, cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        return *value = static_cast<int>(p.sharedMemPerBlock), cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return *value = static_cast<int>(p.sharedMemPerBlockOptin), cudaSuccess;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        return *value = p.maxThreadsPerMultiProcessor, cudaSuccess;
      case cudaDevAttrL2CacheSize:
        return *value = p.l2CacheSize, cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}
cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call([&](Runtime&) {
    if (!memory_of(device) || !memory_of(peer)) return cudaErrorInvalidDevice;
    if (!can) return cudaErrorInvalidValue;
    *can = device != peer;
    return cudaSuccess;
  });
}
// Lets kernels on the current device access the peer's memory, but not the reverse.
cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call([&](Runtime&) {
    if (!memory_of(peer)) return cudaErrorInvalidDevice;
    if (flags != 0) return cudaErrorInvalidValue;
    if (peer == current_device) return cudaErrorPeerAccessUnsupported;
    return memory_of(current_device)->peers.insert(peer).second ? cudaSuccess
                                                                : cudaErrorPeerAccessAlreadyEnabled;
  });
}
cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peer) {
  return call([&](Runtime&) {
    if (!memory_of(peer)) return cudaErrorInvalidDevice;
    return memory_of(current_device)->peers.erase(peer) ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}

}  // extern "C"
