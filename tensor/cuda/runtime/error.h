// Errors of the CUDA runtime and driver.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "gradus/tensor/base/device_failure.h"

namespace gradus::cuda {

// Whether every later call in this process fails as well: CUDA's manual wants a new process then.
constexpr bool loses_device(cudaError_t status) {
  switch (status) {
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

// "cuda:0: invalid argument (cudaErrorInvalidValue)", of the calling thread's device. Whoever asks CUDA for
// the last error afterwards finds none.
inline std::string describe(cudaError_t status) {
  int device = 0;
  (void)cudaGetDevice(&device);
  (void)cudaGetLastError();
  return concat("cuda:", device, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")",
                loses_device(status) ? "; the device is lost for this process: compute on the CPU, or start "
                                       "the program again"
                                     : "");
}

// A call of CUDA failed: a wrong argument, short memory, or a device that an earlier kernel has lost.
struct CudaError : DeviceFailure {
  CudaError(const char* op, const char* call, cudaError_t status)
      : DeviceFailure(op, call, " failed on ", describe(status)), status(status) {}
  cudaError_t status;
};

// Errors: CudaError unless `status` is success.
inline void check(const char* op, const char* call, cudaError_t status) {
  if (status != cudaSuccess) [[unlikely]]
    throw CudaError(op, call, status);
}

// Calls f, which calls a library of CUDA's. Libraries do not tell why they fail: where an earlier kernel has
// lost the device, the error says so.
template <class F> auto call_library(F&& f) {
  try {
    return f();
  } catch (DeviceFailure& e) {
    size_t unused, total;
    const cudaError_t status = cudaMemGetInfo(&unused, &total);
    const std::string text = describe(status);
    if (loses_device(status)) e.add_context(text);
    throw;
  }
}

}  // namespace gradus::cuda
