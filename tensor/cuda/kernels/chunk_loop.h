// Device code: the loop of a block's kChunkThreads threads over its chunk of a tensor (tensor_table.h).
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/kernels/tensor_table.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {

// Calls f.operator()<n>(i) for vectors of n elements i .. i + n - 1 of the chunk, if `in_vectors`, which
// requires that all arrays of the caller are aligned. Calls f.operator()<1>(i) for the other elements. Thread
// t has vectors (or elements) t, t + kChunkThreads, ...
template <int n, class F>
__device__ __forceinline__ void for_each_chunk_vector(const Chunk& chunk, bool in_vectors, F&& f) {
  int done = 0;  // elements that vectors cover
  if (in_vectors) {
    done = chunk.count / n * n;
    // Not unrolled: more registers per thread would mean fewer resident blocks.
#pragma unroll 1
    for (int i = threadIdx.x * n; i < done; i += kChunkThreads * n) f.template operator()<n>(i);
  }
#pragma unroll 1
  for (int i = done + threadIdx.x; i < chunk.count; i += kChunkThreads) f.template operator()<1>(i);
}

}  // namespace gradus::cuda
