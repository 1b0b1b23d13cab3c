// What kernels are written against (tensor/cuda/kernels/kernel.h), as nvcc compiles it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace gradus::cuda {

__device__ __forceinline__ int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int64_t block_index() { return blockIdx.x; }
__device__ __forceinline__ int block_threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int64_t grid_blocks() { return gridDim.x; }

template <class T> __device__ __forceinline__ T& shared_memory() {
  static_assert(alignof(T) <= 16);
  extern __shared__ __align__(16) unsigned char gradus_shared_memory[];
  return *reinterpret_cast<T*>(gradus_shared_memory);
}

__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_warp(uint32_t mask = 0xffffffffu) { __syncwarp(mask); }
template <class T> __device__ __forceinline__ T shuffle(uint32_t mask, T value, int lane) {
  return __shfl_sync(mask, value, lane);
}
template <class T> __device__ __forceinline__ T shuffle_xor(uint32_t mask, T value, int lanes) {
  return __shfl_xor_sync(mask, value, lanes);
}
template <class T> __device__ __forceinline__ T shuffle_down(uint32_t mask, T value, int lanes) {
  return __shfl_down_sync(mask, value, static_cast<unsigned>(lanes));
}
template <class T> __device__ __forceinline__ T shuffle_up(uint32_t mask, T value, int lanes) {
  return __shfl_up_sync(mask, value, static_cast<unsigned>(lanes));
}
__device__ __forceinline__ uint32_t ballot(uint32_t mask, bool condition) {
  return __ballot_sync(mask, condition);
}

// As words of the hardware's, whatever the elements are.
template <int bytes>
using Words = std::conditional_t<
    bytes == 16, uint4,
    std::conditional_t<
        bytes == 8, uint2,
        std::conditional_t<bytes == 4, uint32_t, std::conditional_t<bytes == 2, uint16_t, uint8_t>>>>;
template <class V> __device__ __forceinline__ V load_vector(const void* p) {
  static_assert(sizeof(V) == sizeof(Words<sizeof(V)>));
  return __builtin_bit_cast(V, *static_cast<const Words<sizeof(V)>*>(p));
}
// In global memory alone. A plain assignment in a loop compiled to one store per word: four times the sectors.
template <class V> __device__ __forceinline__ void store_vector(void* p, V v) {
  static_assert(sizeof(V) == sizeof(Words<sizeof(V)>));
  __stwb(static_cast<Words<sizeof(V)>*>(p), __builtin_bit_cast(Words<sizeof(V)>, v));
}
template <class V> __device__ __forceinline__ void store_shared(V* p, const V& v) { *p = v; }

template <class T> __device__ __forceinline__ T atomic_add(T* p, T value) {
  static_assert(std::is_integral_v<T>);  // sums of floats would depend on the order of threads
  return atomicAdd(p, value);
}
__device__ __forceinline__ uint64_t atomic_min(uint64_t* p, uint64_t value) {
  return atomicMin(reinterpret_cast<unsigned long long*>(p), value);
}
__device__ __forceinline__ uint64_t atomic_cas(uint64_t* p, uint64_t expected, uint64_t value) {
  return atomicCAS(reinterpret_cast<unsigned long long*>(p), expected, value);
}

__device__ __forceinline__ float f16_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ __forceinline__ uint16_t float_to_f16(float x) { return __half_as_ushort(__float2half_rn(x)); }
__device__ __forceinline__ uint16_t float_to_bf16(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

template <class... P, class... A>
cudaError_t try_launch(const char*, void (*kernel)(P...), const Grid& grid, cudaStream_t stream, A... args) {
  static_assert(sizeof...(P) == sizeof...(A) && (std::is_trivially_copyable_v<P> && ...));
  // From here on a launch needs leave to use so much.
  constexpr int64_t kSharedBytes = 48 << 10;
  if (grid.shared_bytes > kSharedBytes)
    if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        static_cast<int>(grid.shared_bytes));
        status != cudaSuccess)
      return status;
  if (grid.blocks < 1 || grid.blocks > 0x7fffffff) return cudaErrorInvalidValue;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared_bytes);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

}  // namespace gradus::cuda
