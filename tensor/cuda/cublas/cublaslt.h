// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// A call of cuBLASLt failed.
struct CublasError : DeviceFailure {
  CublasError(const char* op, const char* call, const char* name, cublasStatus_t status)
      : DeviceFailure(op, call, " failed: ", name), status(status) {}
  cublasStatus_t status;
};

// Whether products and convolutions in f32 may be computed by tensor cores. They take 10 bits of operands'
// mantissas (tf32): several times faster, with errors of some 1e-3 of the terms. Off at first. It holds for
// the whole program; what was started keeps what held then.
void set_tf32(bool on);
bool uses_tf32();

// The most rows, columns, and matrices of a batch that the library takes.
inline constexpr int64_t kMaxRows = 0x7fffffff;

// Matrices as the library has them: `rows` neighboring elements are a column, `ld` elements lie between
// columns, `step` between the matrices of a batch.
struct Matrices {
  void* p;
  int64_t rows, cols, ld, step;
  bool transposed = false;
};

// d = op(a) op(b) + bias, or relu of that, for each of a batch. The bias is null, or one for all with an
// element for each of the rows of d.
struct MatrixProduct {
  Matrices a, b, d;
  DType dtype;         // of a and b: floating
  DType result_dtype;  // of d and the bias: the same, or f32
  int64_t batch;
  const void* bias;
  bool rectifies = false;
};

// Queues a product on the device's current stream, which is `stream`. The device is the calling thread's.
// Errors: DeviceError without the library; CublasError.
void multiply(const char* op, const MatrixProduct& p, Device device, cudaStream_t stream);

}  // namespace gradus::cuda
