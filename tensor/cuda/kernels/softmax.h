// Softmax of dense tensors seen as [outer, n, inner], over n, and its gradient. T is float or double.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// y = e^x / sum e^x, or its logarithm.
template <class T>
void softmax(const char* op, T* y, const T* x, int64_t outer, int64_t n, int64_t inner, bool log,
             cudaStream_t stream);
// dx = y (dy - sum(dy y)), of the logarithm dx = dy - e^y sum(dy).
template <class T>
void softmax_backward(const char* op, T* dx, const T* dy, const T* y, int64_t outer, int64_t n, int64_t inner,
                      bool log, cudaStream_t stream);

}  // namespace gradus::cuda
