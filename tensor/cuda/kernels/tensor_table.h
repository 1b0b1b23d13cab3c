// Many tensors in one launch. A table of them travels in the kernel's arguments. Their elements are cut into
// chunks, and each block takes one. So the number of launches does not depend on their sizes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "gradus/tensor/cuda/kernel.h"

namespace gradus::cuda {

inline constexpr int kChunk = 4096;  // elements of a block
inline constexpr int kChunkThreads = 256;
inline constexpr int kArgumentBytes = 4096;  // of a launch, at most
inline constexpr int kOtherArguments = 224;  // what a table leaves of them

// Dense arrays of n elements each that are computed together, element by element.
template <int arrays> struct ArraysOfTensor {
  std::array<void*, arrays> data;
  int64_t n;
};

// A block's part of a tensor: `count` elements from element `from` on.
struct Chunk {
  int tensor;
  int count;
  int64_t from;
};

template <int arrays> struct TensorTable {
  // An odd number, so that no padding is between the members: kernels' arguments have none.
  static constexpr int kMost = ((kArgumentBytes - kOtherArguments) / (8 * arrays + 12) - 1) | 1;
  void* data[arrays][kMost];
  int64_t n[kMost];
  int32_t first_block[kMost];
  int32_t count = 0;

  // Returns the chunk of a block.
  __device__ __forceinline__ Chunk chunk_of(int64_t block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      first_block[middle] <= block ? low = middle : high = middle;
    }
    const int64_t from = (block - first_block[low]) * kChunk;
    return {low, static_cast<int>(std::min<int64_t>(n[low] - from, kChunk)), from};
  }
  template <class T> __device__ __forceinline__ T* at(int array, const Chunk& chunk) const {
    return static_cast<T*>(data[array][chunk.tensor]) + chunk.from;
  }
};

// Calls f(table, number of blocks) for tables that have all tensors with elements.
template <int arrays, class F> void for_each_table(std::span<const ArraysOfTensor<arrays>> tensors, F&& f) {
  constexpr int64_t kMostBlocks = 0x7fffffff;
  using Table = TensorTable<arrays>;
  static_assert(sizeof(Table) == (8 * arrays + 12) * Table::kMost + 4 &&
                sizeof(Table) <= kArgumentBytes - kOtherArguments + 4);
  Table table{};
  int64_t blocks = 0;
  for (const ArraysOfTensor<arrays>& tensor : tensors) {
    if (tensor.n == 0) continue;
    const int64_t more = blocks_for(tensor.n, kChunk);
    if (table.count == table.kMost || blocks + more > kMostBlocks) {
      f(std::as_const(table), blocks);
      table.count = 0, blocks = 0;
    }
    for (int k = 0; k < arrays; ++k) table.data[k][table.count] = tensor.data[size_t(k)];
    table.n[table.count] = tensor.n;
    table.first_block[table.count] = static_cast<int32_t>(blocks);
    blocks += more, ++table.count;
  }
  if (blocks > 0) f(std::as_const(table), blocks);
}

// Whether vectors of n elements can be loaded from there.
template <int n, class T> __device__ __forceinline__ bool holds_vectors(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (n * sizeof(T)) == 0;
}

template <int n, class T> __device__ __forceinline__ Vector<T, n> load_part(const T* p) {
  if constexpr (n == 1)
    return {*p};
  else
    return load_vector<Vector<T, n>>(p);
}
template <int n, class T> __device__ __forceinline__ void store_part(T* p, const Vector<T, n>& v) {
  if constexpr (n == 1)
    *p = v.v[0];
  else
    store_vector(p, v);
}

// Calls f.operator()<n>(i) for the calling thread's vectors of n elements, if the chunk holds vectors. Then
// it calls f.operator()<1>(i) for the thread's elements that are left.
template <int n, class F>
__device__ __forceinline__ void for_each_part(const Chunk& chunk, bool in_vectors, F&& f) {
  int done = 0;
  if (in_vectors) {
    done = chunk.count / n * n;
    // Unrolled, loops take registers that more blocks have a better use for.
#pragma unroll 1
    for (int i = thread_index() * n; i < done; i += kChunkThreads * n) f.template operator()<n>(i);
  }
#pragma unroll 1
  for (int i = done + thread_index(); i < chunk.count; i += kChunkThreads) f.template operator()<1>(i);
}

}  // namespace gradus::cuda
