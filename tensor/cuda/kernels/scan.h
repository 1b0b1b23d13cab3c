// Exclusive prefix sums of n integers modulo 2^64 on CUDA devices: prefix[i] = sum of value_of(j) over j < i, for i =
// 0 .. n. A launch scans tiles of kScanTile values; where there are several tiles, the tile sums are scanned
// recursively, and one more launch adds the scanned tile sums to the tiles: 1 launch for up to 2048 values, 3 for up to 4 million, 5 for up to 8 billion.
// Source: Harris, Sengupta and Owens, Parallel Prefix Sum (Scan) with CUDA, GPU Gems 3, chapter 39.
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {

inline constexpr int kScanThreads = 256;
inline constexpr int kScanValuesPerThread = 8;  // values of a thread
inline constexpr int64_t kScanTile = kScanThreads * kScanValuesPerThread;

namespace scan_detail {

struct WarpSums {
  uint64_t v[kScanThreads / kWarp];
};

// Returns the sum of `value` over the threads of the block before the calling one, and sets *total to the sum over
// all of them. All threads call it.
__device__ __forceinline__ uint64_t block_exclusive_sum(uint64_t value, uint64_t* total) {
  auto& sums = shared_memory<WarpSums>();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint64_t inclusive_sum = value;  // sum up to this lane
#pragma unroll
  for (int d = 1; d < kWarp; d *= 2) {
    const uint64_t other = __shfl_sync(kAllLanes, inclusive_sum, lane >= d ? lane - d : lane);
    if (lane >= d) inclusive_sum += other;
  }
  __syncthreads();  // the previous call's sums have been read
  if (lane == kWarp - 1) sums.v[warp] = inclusive_sum;
  __syncthreads();
  uint64_t before = inclusive_sum - value;
  *total = 0;
#pragma unroll
  for (int w = 0; w < kScanThreads / kWarp; ++w) {
    if (w < warp) before += sums.v[w];
    *total += sums.v[w];
  }
  return before;
}

// prefix[i] = sum of value_of(j) over the j < i of i's tile, and sums[tile] = the tile's sum. A block has a tile, a
// thread every kScanThreads-th value of the tile. `prefix` may be the array that value_of reads.
template <class ValueOf>
__global__ void __launch_bounds__(kScanThreads, 4)
    scan_tiles(uint64_t* prefix, uint64_t* sums, ValueOf value_of, int64_t n) {
  const int64_t first = int64_t{blockIdx.x} * kScanTile + threadIdx.x;
  uint64_t values[kScanValuesPerThread];
#pragma unroll
  for (int e = 0; e < kScanValuesPerThread; ++e) {
    const int64_t i = first + e * kScanThreads;
    values[e] = i < n ? value_of(i) : 0;
  }
  uint64_t before = 0;
#pragma unroll
  for (int e = 0; e < kScanValuesPerThread; ++e) {
    const int64_t i = first + e * kScanThreads;
    uint64_t total;
    const uint64_t sum = before + block_exclusive_sum(values[e], &total);
    if (i < n) prefix[i] = sum;
    before += total;
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = before;
}

// prefix[i] += offsets[tile of i] for i < n; prefix[n] = offsets[number of tiles]. A thread has one i.
static __global__ void __launch_bounds__(kScanThreads)
    add_offsets(uint64_t* prefix, const uint64_t* offsets, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kScanThreads + threadIdx.x;
  if (i < n) prefix[i] += offsets[i / kScanTile];
  if (i == n) prefix[n] = offsets[(n + kScanTile - 1) / kScanTile];
}

struct LoadValue {
  const uint64_t* values;
  __device__ __forceinline__ uint64_t operator()(int64_t i) const { return values[i]; }
};

}  // namespace scan_detail

// Returns the number of elements of the workspace of exclusive_scan().
inline int64_t scan_workspace(int64_t n) {
  const int64_t tiles = blocks_for(n, kScanTile);
  return tiles <= 1 ? 0 : tiles + 1 + scan_workspace(tiles);
}

// Queues the scan of value_of(0), ..., value_of(n - 1) to prefix[n + 1]; n may be 0. ValueOf is trivially copyable.
template <class ValueOf>
void exclusive_scan(const char* op, uint64_t* prefix, const ValueOf& value_of, int64_t n, uint64_t* workspace,
                    cudaStream_t stream) {
  using namespace scan_detail;  // NOLINT
  const int64_t tiles = blocks_for(n, kScanTile);
  if (tiles <= 1)
    return launch(op, scan_tiles<ValueOf>, {1, kScanThreads, sizeof(WarpSums)}, stream, prefix, prefix + n,
                  value_of, n);
  launch(op, scan_tiles<ValueOf>, {tiles, kScanThreads, sizeof(WarpSums)}, stream, prefix, workspace,
         value_of, n);
  exclusive_scan(op, workspace, LoadValue{workspace}, tiles, workspace + tiles + 1, stream);
  launch(op, add_offsets, {blocks_for(n + 1, kScanThreads), kScanThreads}, stream, prefix, workspace, n);
}

}  // namespace gradus::cuda
