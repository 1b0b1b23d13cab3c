// Launches of softmax or log_softmax over n of row-major [outer, n, inner] tensors, and of the gradient. T is
// float, double, bf16 or f16; 16-bit floats are computed in f32 and rounded once. Pointers are memory of the
// device of `stream`; `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// y = e^x / sum_n e^x, or its logarithm if `log`.
template <class T>
void softmax(const char* op, T* y, const T* x, int64_t outer, int64_t n, int64_t inner, bool log,
             cudaStream_t stream);
// From the result y: dx = y * (dy - sum_n(dy * y)), or dx = dy - e^y * sum_n(dy) if `log`.
template <class T>
void softmax_backward(const char* op, T* dx, const T* dy, const T* y, int64_t outer, int64_t n, int64_t inner,
                      bool log, cudaStream_t stream);

}  // namespace gradus::cuda
