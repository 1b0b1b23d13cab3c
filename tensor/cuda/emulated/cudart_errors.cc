// The CUDA runtime's errors.
#include <cuda_runtime_api.h>

#include <atomic>

#include "gradus/tensor/cuda/emulated/call.h"

namespace gradus::cuda::emulated {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
std::atomic<int64_t> calls_to_failure{-1};
std::atomic<cudaError_t> failure{cudaSuccess};

bool is_sticky(cudaError_t status) {
  return status == cudaErrorIllegalAddress || status == cudaErrorMisalignedAddress ||
         status == cudaErrorLaunchFailure || status == cudaErrorAssert;
}

struct Name {
  cudaError_t status;
  const char *name, *text;
};
constexpr Name kNames[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
};

}  // namespace

void fail_call(int64_t n, cudaError_t status) {
  failure = status;
  calls_to_failure = n;
}

cudaError_t injected_failure() {
  if (calls_to_failure < 0 || calls_to_failure-- != 0) return cudaSuccess;
  if (is_sticky(failure)) Runtime::get().sticky = failure;
  return failure;
}

cudaError_t answer(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) last_error = status;
  return status;
}

}  // namespace gradus::cuda::emulated

using namespace gradus::cuda::emulated;  // NOLINT

extern "C" {

cudaError_t CUDARTAPI cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t CUDARTAPI cudaPeekAtLastError() { return last_error; }
const char* CUDARTAPI cudaGetErrorName(cudaError_t status) {
  for (const Name& n : kNames)
    if (n.status == status) return n.name;
  return "unrecognized error code";
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t status) {
  for (const Name& n : kNames)
    if (n.status == status) return n.text;
  return "unrecognized error code";
}

}  // extern "C"
