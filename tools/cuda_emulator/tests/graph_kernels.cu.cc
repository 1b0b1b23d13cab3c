// Kernels of graph_kernels.h.
#include "graph_kernels.h"

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace graph_kernels {
namespace {

using namespace gradus::cuda;  // NOLINT

__global__ void does_nothing() {}
__global__ void adds(float* y, const float* x, const float* z, float by, int n) {
  if (const int i = threadIdx.x; i < n) y[i] = x[i] + z[i] + by;
}

}  // namespace

cudaError_t nothing(int threads, cudaStream_t stream) {
  return try_launch("graphs", does_nothing, {1, threads}, stream);
}
cudaError_t add(float* y, const float* x, const float* z, float by, int n, cudaStream_t stream) {
  return try_launch("graphs", adds, {1, n}, stream, y, x, z, by, n);
}

}  // namespace graph_kernels
