// Matrix products d = op(a) op(b) + bias on a GPU by NVIDIA's cuBLASLt, which is opened at run time.
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

// Maximal number of rows, of columns, and of matrices in a batch.
inline constexpr int64_t kMaxRows = 0x7fffffff;

// Column-major matrices, not empty, in device memory that outlives the queued product. Element (r, c) of
// matrix i is at data[i * batch_stride + c * ld + r]; strides count elements. batch_stride 0: one matrix for
// the whole batch.
struct MatrixBatch {
  void* data;
  int64_t rows, cols, ld, batch_stride;  // rows and cols in memory, before op()
  bool transposed = false;               // op(x) is x transposed, else x; false for d
};
// d[M, N] = op(a)[M, K] op(b)[K, N] + bias, or relu of that, for each matrix of the batch.
struct MatrixProduct {
  MatrixBatch a, b, d;
  DType dtype;         // of a and b: floating
  DType result_dtype;  // of d and the bias: the same, or f32
  int64_t batch;       // number of matrices
  const void* bias;    // [M], added to each column of every d; null: no bias
  bool relu = false;
  // [N], of result_dtype: receives the sums of the columns of op(b); null: no sums. Only without bias and relu, for
  // one matrix.
  void* b_sums = nullptr;
};

// Queues a product on `stream`, the current one of `device`, the calling thread's CUDA device. With
// Context::tf32, f32 is multiplied in TF32. Returns true; false, with nothing queued, if cuBLASLt has no algorithm that
// computes p.b_sums too. Thread-safe.
// Errors: DeviceError if cuBLASLt is not installed; CublasError, also if it has no algorithm for the product.
bool multiply(const char* op, const MatrixProduct& p, Device device, cudaStream_t stream);

}  // namespace gradus::cuda
