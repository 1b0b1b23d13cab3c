// Loads and stores of vectors: n neighboring elements that a thread reads or writes at once. A vector of one
// element needs no more alignment than its type, unless it has 16 bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {

// Elements of a vector whose largest type T takes 16 bytes; 1 for larger types.
template <class... T>
inline constexpr int kVectorSize = std::max(1, 16 / static_cast<int>(std::max({sizeof(T)...})));

__host__ __device__ __forceinline__ bool is_aligned(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

template <int n, class T> __device__ __forceinline__ Vector<T, n> load(const T* p) {
  if constexpr (n == 1 && sizeof(T) != 16)
    return {*p};
  else
    return load_vector<Vector<T, n>>(p);
}
template <class T, int n> __device__ __forceinline__ void store(T* p, const Vector<T, n>& v) {
  if constexpr (n == 1 && sizeof(T) != 16)
    *p = v.v[0];
  else
    store_vector(p, v);
}

// The first `left` elements from p on, then T(); all n if there are as many.
template <int n, class T> __device__ __forceinline__ Vector<T, n> load_first(const T* p, int64_t left) {
  if (n <= left) return load<n>(p);
  Vector<T, n> v;
#pragma unroll
  for (int i = 0; i < n; ++i) v.v[i] = i < left ? p[i] : T();
  return v;
}
// Stores the first `left` elements of v; all n if there are as many.
template <class T, int n>
__device__ __forceinline__ void store_first(T* p, const Vector<T, n>& v, int64_t left) {
  if (n <= left) return store(p, v);
#pragma unroll
  for (int i = 0; i < n; ++i)
    if (i < left) p[i] = v.v[i];
}

}  // namespace gradus::cuda
