// Errors of the CUDA runtime and driver.
#pragma once

#include <cuda_runtime_api.h>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {

// A call of CUDA failed: out of memory, a wrong argument, or a device that an earlier kernel has lost.
struct CudaError : Error {
  CudaError(const char* op, const char* call, cudaError_t status)
      : Error(op, call, " failed on cuda:", device(), ": ", cudaGetErrorString(status), " (",
              cudaGetErrorName(status), ")"),
        status(status) {}
  cudaError_t status;

 private:
  static int device() {
    int current = 0;
    (void)cudaGetDevice(&current);
    (void)cudaGetLastError();  // the error is told: nobody shall find it again
    return current;
  }
};

// Errors: CudaError unless `status` is success.
inline void check(const char* op, const char* call, cudaError_t status) {
  if (status != cudaSuccess) [[unlikely]]
    throw CudaError(op, call, status);
}

}  // namespace gradus::cuda
