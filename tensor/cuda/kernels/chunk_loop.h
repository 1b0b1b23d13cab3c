// The loop of a block over its chunk of a tensor: vectors where they are aligned, else single elements.
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/kernels/tensor_table.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {

// Calls f.operator()<n>(i) for the calling thread's vectors of n elements, if the chunk holds vectors. Then
// it calls f.operator()<1>(i) for the thread's elements that are left.
template <int n, class F>
__device__ __forceinline__ void for_each_part(const Chunk& chunk, bool in_vectors, F&& f) {
  int done = 0;
  if (in_vectors) {
    done = chunk.count / n * n;
    // Unrolled, loops take registers that more blocks have a better use for.
#pragma unroll 1
    for (int i = threadIdx.x * n; i < done; i += kChunkThreads * n) f.template operator()<n>(i);
  }
#pragma unroll 1
  for (int i = done + threadIdx.x; i < chunk.count; i += kChunkThreads) f.template operator()<1>(i);
}

}  // namespace gradus::cuda
