// Device functions and launches for kernel files, *.cu.cc. nvcc compiles a kernel file for GPUs; a build may
// compile the same file for another device, whose functions it names (GRADUS_DEVICE_FUNCTIONS, bazel/cuda.bzl).
//
//   __global__ void __launch_bounds__(kThreads) add(float* y, const float* a, const float* b, int64_t n) {
//     const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
//     if (i < n) y[i] = a[i] + b[i];
//   }
//   launch("add", add, {.blocks = blocks_for(n, kThreads), .threads = kThreads}, stream, y, a, b, n);
//
// Kernels use these names of CUDA, and no others: threadIdx.x, blockIdx.x, blockDim.x, gridDim.x,
// __syncthreads, __syncwarp, __shfl_sync, __shfl_xor_sync, __ballot_sync, and on integers atomicAdd,
// atomicMin, atomicCAS. Besides these there are:
//
//   shared_memory<T>()      the block's T; Grid::shared_bytes is its size; not initialized
//   load_vector<V>(p)       8 or 16 bytes at once, aligned to their size
//   store_vector(p, v)      stores 8 or 16 bytes at once in global memory
//   f16_to_float(bits) float_to_f16(x) float_to_bf16(x)
//
// Threads of a block share what a barrier lies between. Blocks of one launch share nothing but atomics.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

namespace gradus::cuda {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

struct Grid {
  int64_t blocks;
  int threads;
  int64_t shared_bytes = 0;
};

// n neighboring elements that are loaded and stored as one (vector_io.h).
template <class T, int n>
struct alignas(std::has_single_bit(sizeof(T) * n) ? sizeof(T) * n : alignof(T)) Vector {
  T v[n];
};

constexpr int64_t blocks_for(int64_t n, int64_t each) { return (n + each - 1) / each; }

}  // namespace gradus::cuda

// Host files that include this header have no device functions.
#if defined(__CUDACC__)
#include "gradus/tensor/cuda/kernels/native_kernel.h"
#elif defined(GRADUS_DEVICE_FUNCTIONS)
#include GRADUS_DEVICE_FUNCTIONS
#endif

#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"

namespace gradus::cuda {

// Starts a kernel: queues it on the stream. Its arguments are converted to its parameters and copied.
// Errors: CudaError naming `op`.
template <class... P, class... A>
void launch(const char* op, void (*kernel)(P...), const Grid& grid, cudaStream_t stream, A... args) {
  check(op, "launch", try_launch(op, kernel, grid, stream, args...));
  count_calls(op, {.launches = 1});
}

}  // namespace gradus::cuda
