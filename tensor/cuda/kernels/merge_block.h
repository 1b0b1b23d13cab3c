// Combines what the threads of a block have, by an Op of reductions (reduce_ops.h).
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/kernels/reduce.h"

namespace gradus::cuda {

template <class Wide, int threads> struct MergedWarps {
  Wide v[threads / kWarp];
};

// Returns the values of all threads combined, in the order of their numbers. All threads of the block call it
// once. Shared memory is MergedWarps.
template <int threads, class Op>
__device__ __forceinline__ typename Op::Wide merge_block(const Op& op, typename Op::Wide mine) {
  constexpr int kWarps = threads / kWarp;
  mine = reduce_detail::merge_lanes(op, mine, kWarp);
  auto& warps = shared_memory<MergedWarps<typename Op::Wide, threads>>();
  if (threadIdx.x % kWarp == 0) warps.v[threadIdx.x / kWarp] = mine;
  __syncthreads();
  return reduce_detail::merge_lanes(op, warps.v[threadIdx.x % kWarps], kWarps);
}

}  // namespace gradus::cuda
