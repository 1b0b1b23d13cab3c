// The device functions that kernel.h adds to CUDA, and try_launch(), for GPUs: compiled by nvcc only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace gradus::cuda {

template <class T> __device__ __forceinline__ T& shared_memory() {
  static_assert(alignof(T) <= 16);
  extern __shared__ __align__(16) unsigned char gradus_shared_memory[];
  return *reinterpret_cast<T*>(gradus_shared_memory);
}

// The built-in type of 1, 2, 4, 8 or 16 bytes that one instruction loads or stores.
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
// For global memory only. A plain assignment in a loop compiles to 32-bit stores: four times the sectors.
template <class V> __device__ __forceinline__ void store_vector(void* p, V v) {
  static_assert(sizeof(V) == sizeof(Words<sizeof(V)>));
  __stwb(static_cast<Words<sizeof(V)>*>(p), __builtin_bit_cast(Words<sizeof(V)>, v));
}

__device__ __forceinline__ float f16_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ __forceinline__ uint16_t float_to_f16(float x) { return __half_as_ushort(__float2half_rn(x)); }
__device__ __forceinline__ uint16_t float_to_bf16(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

// Launches a kernel; returns CUDA's status. The first parameter, the op, serves the emulated device only.
template <class... P, class... A>
cudaError_t try_launch(const char*, void (*kernel)(P...), const Grid& grid, cudaStream_t stream, A... args) {
  static_assert(sizeof...(P) == sizeof...(A) && (std::is_trivially_copyable_v<P> && ...));
  // CUDA requires opting in to more dynamic shared memory than this.
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
