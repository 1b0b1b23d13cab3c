// Device code: vectorized loads and stores of n neighboring elements by one thread in one instruction.
// Addresses are aligned to the vector's size; for n = 1 to alignof(T), unless T has 16 bytes. On the host: with_word.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {

// The number of elements per vector such that 16 bytes hold a vector of the largest T; at least 1.
template <class... T>
inline constexpr int kVectorSize = std::max(1, 16 / static_cast<int>(std::max({sizeof(T)...})));

__host__ __device__ __forceinline__ bool is_aligned(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// Loads p[0 .. n-1].
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
// Bounds-checked: loads p[i] for i < count; the other elements are T(). count >= n: loads a whole vector.
template <int n, class T> __device__ __forceinline__ Vector<T, n> load_first(const T* p, int64_t count) {
  if (n <= count) return load<n>(p);
  Vector<T, n> v;
#pragma unroll
  for (int i = 0; i < n; ++i) v.v[i] = i < count ? p[i] : T();
  return v;
}
// Bounds-checked: stores v[i] for i < count. count >= n: stores the whole vector.
template <class T, int n>
__device__ __forceinline__ void store_first(T* p, const Vector<T, n>& v, int64_t count) {
  if (n <= count) return store(p, v);
#pragma unroll
  for (int i = 0; i < n; ++i)
    if (i < count) p[i] = v.v[i];
}

// Calls f(W()) with the word type of 1, 2, 4, 8 or 16 bytes.
template <class F> void with_word(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(Vector<uint8_t, 1>());
    case 2:
      return f(Vector<uint16_t, 1>());
    case 4:
      return f(Vector<uint32_t, 1>());
    case 8:
      return f(Vector<uint64_t, 1>());
    default:
      return f(Vector<uint64_t, 2>());
  }
}

}  // namespace gradus::cuda
