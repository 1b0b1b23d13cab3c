// Errors of the CUDA runtime and driver.
#pragma once

#include <cuda_runtime_api.h>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {

// A call of CUDA failed: no driver, out of memory, or a device that an earlier kernel has lost.
struct CudaError : Error {
  CudaError(const char* op, const char* call, cudaError_t status)
      : Error(op, call, " failed: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"),
        status(status) {}
  cudaError_t status;
};

// Errors: CudaError unless `status` is success.
inline void check(const char* op, const char* call, cudaError_t status) {
  if (status != cudaSuccess) throw CudaError(op, call, status);
}

}  // namespace gradus::cuda
