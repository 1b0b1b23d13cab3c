// Kernels that graphs_test.cc captures. Each function launches a kernel of one block, and returns the
// launch's status.
#pragma once

#include <cuda_runtime_api.h>

namespace graph_kernels {

cudaError_t nothing(int threads, cudaStream_t stream);
// y[i] = x[i] + z[i] + by, of n elements.
cudaError_t add(float* y, const float* x, const float* z, float by, int n, cudaStream_t stream);

}  // namespace graph_kernels
