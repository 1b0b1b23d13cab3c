// Device functions and launches for kernel files, *.cu.cc. nvcc compiles a kernel file for GPUs; the host's
// compiler compiles it for an emulated device, with the functions in GRADUS_DEVICE_FUNCTIONS.
//
//   __global__ void __launch_bounds__(kThreads) add(float* y, const float* a, const float* b, int64_t n) {
//     const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
//     if (i < n) y[i] = a[i] + b[i];
//   }
//   launch("add", add, {.blocks = blocks_for(n, kThreads), .threads = kThreads}, stream, y, a, b, n);
//
// Grids and blocks have one dimension. Kernels use these names of CUDA, and no others: threadIdx.x,
// blockIdx.x, blockDim.x, gridDim.x, __syncthreads, __syncwarp, __shfl_sync, __shfl_xor_sync, __ballot_sync,
// and on integers atomicAdd, atomicMin, atomicCAS. This header adds:
//
//   shared_memory<T>()      the block's dynamic shared memory of Grid::shared_bytes, uninitialized
//   load_vector<V>(p)       loads a V of 1, 2, 4, 8 or 16 bytes at once; p is aligned to its size
//   store_vector(p, v)      stores v at once in global memory; p is aligned to the size of v
//   f16_to_float(bits), float_to_f16(x), float_to_bf16(x)   16-bit floats as uint16_t; rounds to nearest even
//
// Threads of a block exchange data through shared memory with a barrier between the write and the read.
// Blocks of one launch exchange data only by atomics.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

namespace gradus::cuda {

inline constexpr int kWarp = 32;                    // threads of a warp
inline constexpr uint32_t kAllLanes = 0xffffffffu;  // mask of a whole warp for __shfl_sync and the like

// The launch configuration of a kernel.
struct Grid {
  int64_t blocks;            // 1 to 2^31 - 1
  int threads;               // of a block
  int64_t shared_bytes = 0;  // dynamic shared memory of a block
};

// n neighboring elements, loaded and stored as one (vector_io.h); aligned to its size if a power of two.
template <class T, int n>
struct alignas(std::has_single_bit(sizeof(T) * n) ? sizeof(T) * n : alignof(T)) Vector {
  T v[n];
};

// Returns n / each, rounded up: the number of blocks for n elements, `each` per block.
constexpr int64_t blocks_for(int64_t n, int64_t each) { return (n + each - 1) / each; }

}  // namespace gradus::cuda

// These headers define the device functions and try_launch(); host files, which launch nothing, get neither.
#if defined(__CUDACC__)
#include "gradus/tensor/cuda/kernels/native_kernel.h"
#elif defined(GRADUS_DEVICE_FUNCTIONS)
#include GRADUS_DEVICE_FUNCTIONS
#endif

#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"

namespace gradus::cuda {

// Queues a kernel on a stream of the calling thread's current CUDA device. Copies the arguments, converted to
// the kernel's parameter types.
// Errors: CudaError naming `op`.
template <class... P, class... A>
void launch(const char* op, void (*kernel)(P...), const Grid& grid, cudaStream_t stream, A... args) {
  check(op, "launch", try_launch(op, kernel, grid, stream, args...));
  count_calls(op, {.launches = 1});
}

}  // namespace gradus::cuda
