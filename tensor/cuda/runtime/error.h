// Errors of the CUDA runtime and driver: check() turns a cudaError_t into a CudaError, call_library()
// completes the errors of libraries on top of CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "gradus/tensor/base/device_failure.h"

namespace gradus::cuda {

// Returns whether the error is sticky: every later CUDA call in this process fails too, and only a new
// process can use the device (CUDA Runtime API, cudaError_t).
constexpr bool is_sticky(cudaError_t status) {
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

// Returns "cuda:0: invalid argument (cudaErrorInvalidValue)" for the calling thread's current device. Clears
// CUDA's last error (cudaGetLastError).
inline std::string describe(cudaError_t status) {
  int device = 0;
  (void)cudaGetDevice(&device);
  (void)cudaGetLastError();
  return concat("cuda:", device, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")",
                is_sticky(status) ? "; the device is lost for this process: compute on the CPU, or start "
                                    "the program again"
                                  : "");
}

// A CUDA call failed: a wrong argument, lack of memory, or a sticky error of an earlier kernel.
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

// Returns f(), which calls a library such as cuDNN and throws DeviceFailure. Libraries do not report why they
// fail, so a sticky error of an earlier kernel is added to the text of the exception.
template <class F> auto call_library(F&& f) {
  try {
    return f();
  } catch (DeviceFailure& e) {
    size_t unused, total;
    const cudaError_t status = cudaMemGetInfo(&unused, &total);
    const std::string text = describe(status);
    if (is_sticky(status)) e.add_context(text);
    throw;
  }
}

}  // namespace gradus::cuda
