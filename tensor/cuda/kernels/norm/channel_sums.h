// Device code that the kernels of batch, layer and group norm share: two f64 sums per channel (of x -
// x[0] and its square, or of g and g * (x - mean)) over the rows of a row-major matrix [rows, channels], and
// per-channel values in shared memory.
//
// Note [Sums by channel]
// The matrix is cut into tiles (ranges of channels) and pieces (ranges of rows). A block processes one piece
// of one tile. Its threads form `groups` groups of `lanes` threads: the lanes of a group cover the tile's
// channels, n neighboring channels per thread, and group g processes rows g, g + groups, ... of the piece.
// The first kernel writes the partial sums f64 [pieces, 2, channels]. In the second kernel each block adds
// the partial sums of its tile in the order of pieces, and processes its piece. So a batch norm takes two
// launches, and no block waits for another block. The number of pieces is so small that reading the partial
// sums is at most 1/25 of the memory traffic.
//
// If the rows are one piece, one launch does both, with the same sums.
//
// A thread accumulates a stretch of kStretch rows in compute_t<T>, then adds the result to its f64 sums.
// Moments are sums of differences: within a stretch from its first row, in total from the first row of the
// matrix. So a large mean causes no cancellation. Additions have a fixed order: results are deterministic.
#pragma once

#include <algorithm>
#include <cmath>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"
#include "gradus/tensor/ops/formulas/batch_norm.h"

namespace gradus::cuda {
namespace channel_sums_detail {

inline constexpr int kThreads = 256;
inline constexpr int kVectors = 8;       // maximal lanes of a tile whose threads have vectors (n > 1)
inline constexpr int kSingles = 32;      // maximal lanes of a tile whose threads have one channel (n = 1)
inline constexpr int kStretch = 16;      // rows accumulated in T before they are added to the f64 sum
inline constexpr int kRowsInFlight = 4;  // rows that a thread loads before it uses the first
inline constexpr int64_t kTargetBlocks = 1024;  // blocks that fill a device

// Maximal number of channels of a tile, for n channels per thread.
template <int n> constexpr int kWidth = n == 1 ? kSingles : kVectors * n;

// A kernel argument: without padding (tools/cuda_emulator/README.md).
struct GridPartition {
  int64_t rows, channels, pieces, length;  // length: rows of a piece
  int64_t tiles;
  int lanes, groups;  // of a block: threads per row, and rows processed at once
};

// The channels and rows of the calling thread.
struct ThreadIndex {
  int64_t channel;     // the first of the thread's n channels
  int64_t rows;        // number of the thread's rows
  int64_t at, stride;  // offset of the first row's element, and from one row to the next
  int64_t tile;        // the first channel of the block
  int piece, lane;
};
template <int n> __device__ __forceinline__ ThreadIndex thread_index(const GridPartition& grid) {
  ThreadIndex thread;
  thread.lane = threadIdx.x % grid.lanes;
  thread.piece = static_cast<int>(blockIdx.x / grid.tiles);
  thread.tile = blockIdx.x % grid.tiles * (grid.lanes * n);
  thread.channel = thread.tile + thread.lane * n;
  const int64_t row = thread.piece * grid.length + threadIdx.x / grid.lanes;
  thread.rows = (std::min(grid.rows, (thread.piece + 1) * grid.length) - row + grid.groups - 1) / grid.groups;
  thread.at = row * grid.channels + thread.channel;
  thread.stride = grid.groups * grid.channels;
  return thread;
}

// Calls load(e, at) and use(e, at) for the thread's next `rows` rows, and advances thread.at. `each` rows are
// loaded before the first is used; e numbers the buffers, `at` is the offset of the row's element.
template <int each, class N, class Load, class Use>
__device__ __forceinline__ void for_each_row(ThreadIndex& thread, N rows, Load&& load, Use&& use) {
#pragma unroll 1
  for (; each <= rows; rows -= each) {
    int64_t at = thread.at;
#pragma unroll
    for (int e = 0; e < each; ++e) load(e, at), at += thread.stride;
#pragma unroll
    for (int e = 0; e < each; ++e) use(e, thread.at), thread.at += thread.stride;
  }
#pragma unroll 1
  for (; rows > 0; --rows) load(0, thread.at), use(0, thread.at), thread.at += thread.stride;
}

// Calls f(rows) for each stretch of the thread's rows; f must process that number of rows.
template <class F> __device__ __forceinline__ void for_each_stretch(const ThreadIndex& thread, F&& f) {
#pragma unroll 1
  for (int64_t left = thread.rows; left > 0; left -= kStretch)
    f(static_cast<int>(std::min<int64_t>(left, kStretch)));
}

// In shared memory: two sums for each channel of each thread; k < n is the first sum of channel k, n + k the
// second. The padding avoids bank conflicts.
template <int n> struct Sums {
  double v[2 * n * (kThreads + (n == 1 ? kSingles : kVectors))];

  __device__ __forceinline__ double& of(const GridPartition& grid, int k, int thread) {
    return v[k * (kThreads + grid.lanes) + thread];
  }
  __device__ __forceinline__ void clear(const GridPartition& grid) {
#pragma unroll
    for (int k = 0; k < 2 * n; ++k) of(grid, k, threadIdx.x) = 0;
  }
  __device__ __forceinline__ void add(const GridPartition& grid, int k, double first, double second) {
    of(grid, k, threadIdx.x) += first;
    of(grid, n + k, threadIdx.x) += second;
  }
};
struct Pair {
  double first, second;
};
// Adds the sums of all groups. Calls f(i, k, sum) once per sum of the block, spread over its threads: sum i
// (0 or 1) of the channel thread.channel + k. All threads call it.
template <int n, class F>
__device__ __forceinline__ void reduce_groups(const GridPartition& grid, const ThreadIndex& thread,
                                              Sums<n>& sums, F&& f) {
  __syncthreads();
  for (int k = threadIdx.x / grid.lanes; k < 2 * n; k += grid.groups) {
    double sum = 0;
    for (int g = 0; g < grid.groups; ++g) sum += sums.of(grid, k, g * grid.lanes + thread.lane);
    if (thread.channel < grid.channels) f(k / n, k % n, sum);
  }
}
// Writes the sums of a block to `pieces`, f64 [pieces, 2, channels]. All threads call it.
template <int n>
__device__ __forceinline__ void write_sums(const GridPartition& grid, const ThreadIndex& thread,
                                           Sums<n>& sums, double* pieces) {
  reduce_groups(grid, thread, sums, [&](int i, int k, double sum) {
    pieces[(int64_t(thread.piece) * 2 + i) * grid.channels + thread.channel + k] = sum;
  });
}
// In shared memory: the sums of a block's channels, for all its threads. All threads call fill().
template <int n> struct TileSums {
  double v[2][kWidth<n>];

  __device__ __forceinline__ void fill(const GridPartition& grid, const ThreadIndex& thread, Sums<n>& sums) {
    reduce_groups(grid, thread, sums, [&](int i, int k, double sum) { v[i][thread.lane * n + k] = sum; });
    __syncthreads();
  }
  __device__ __forceinline__ Pair of(int channel) const { return {v[0][channel], v[1][channel]}; }
};

// Adds the partial sums of all `count` pieces. Returns those of channel threadIdx.x % width of the tile,
// whose first channel is `tile`. `parts` is shared memory. All threads call it.
template <int width>
__device__ __forceinline__ Pair sums_of(const double* pieces, int64_t count, int64_t tile, int64_t channels,
                                        double (&parts)[kThreads]) {
  constexpr int kBoth = 2 * width, kParts = kThreads / kBoth;
  const int local = threadIdx.x % kBoth;
  const int64_t channel = tile + local % width;
  double sum = 0;
  if (channel < channels) {
#pragma unroll 4
    for (int64_t p = threadIdx.x / kBoth; p < count; p += kParts)
      sum += pieces[(p * 2 + local / width) * channels + channel];
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  Pair all{0, 0};
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    all.first += parts[p * kBoth + threadIdx.x % width];
    all.second += parts[p * kBoth + width + threadIdx.x % width];
  }
  return all;
}

// In shared memory: `count` values per channel of a tile, n channels per thread. kApart: no bank conflicts.
template <class A, int count, int n> struct TileValues {
  static constexpr int kApart = n == 1 ? kSingles : n == 8 ? 12 : kVectors;
  A v[count][n * kApart];

  // Calls f(channel, numbers), which computes the values, once for each channel. All threads call it.
  template <class F>
  __device__ __forceinline__ void fill(const GridPartition& grid, const ThreadIndex& thread, F&& f) {
    const int c = threadIdx.x;
    if (c < kWidth<n> && thread.tile + c < grid.channels) {
      A numbers[count];
      f(thread.tile + c, numbers);
#pragma unroll
      for (int i = 0; i < count; ++i) v[i][c % n * kApart + c / n] = numbers[i];
    }
    __syncthreads();
  }
  // Returns value i of channel k of the lane's n channels.
  __device__ __forceinline__ A of(int i, int k, int lane) const { return v[i][k * kApart + lane]; }
  __device__ __forceinline__ void take(const ThreadIndex& thread, A (&local)[count][n]) const {
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int k = 0; k < n; ++k) local[i][k] = of(i, k, thread.lane);
  }
};

template <class T>
__device__ __forceinline__ compute_t<T> scale_of(const BatchNorm<T>& s, int64_t channel, compute_t<T> var) {
  const double weight = s.weight ? static_cast<double>(s.weight[channel]) : 1.0;
  return static_cast<compute_t<T>>(formulas::batch_norm_scale(weight, static_cast<double>(var), s.eps));
}
template <class T> __device__ __forceinline__ compute_t<T> shift_of(const BatchNorm<T>& s, int64_t channel) {
  return s.bias ? s.bias[channel] : compute_t<T>(0);
}

// The shared memory of kernels: for partial sums, for the second launch, and for both in one launch.
template <class A, int count, int n> struct SumShared {
  TileValues<A, count, n> tile;
  Sums<n> sums;
};

template <class A, int count, int n> struct ApplyShared {
  double parts[kThreads];
  TileValues<A, count, n> tile;
};

template <class A, int summed, int used, int n> struct FusedShared {
  SumShared<A, summed, n> summing;
  TileSums<n> sums;
  TileValues<A, used, n> tile;
};

// first[c] = sum_p pieces[p, 0, c] and second[c] = sum_p pieces[p, 1, c]. If x[rows, channels] is given,
// these are sums about x[0, c], and the results are mean[c] and m2[c] = sum_r (x[r, c] - mean[c])^2. A block
// has kSingles channels, and a thread every 4th piece of one of their 2 * kSingles sums.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    finish_sums(Out* first, Out* second, const T* x, int64_t rows, int64_t channels, const double* pieces,
                int64_t count) {
  auto& parts = shared_memory<double[kThreads]>();
  const int64_t tile = int64_t{blockIdx.x} * kSingles;
  const Pair sums = sums_of<kSingles>(pieces, count, tile, channels, parts);
  const int64_t channel = tile + threadIdx.x;
  if (threadIdx.x >= kSingles || channel >= channels) return;
  if (x) {
    const auto n = static_cast<double>(rows);
    first[channel] = static_cast<Out>(static_cast<double>(widen(x[channel])) + sums.first / n);
    second[channel] = static_cast<Out>(formulas::squares_about_mean(sums.first, sums.second, n));
  } else {
    first[channel] = static_cast<Out>(sums.first), second[channel] = static_cast<Out>(sums.second);
  }
}

// Returns the number of pieces. Each of a tile's `pieces` blocks reads the sums of all pieces: these pieces^2
// reads are at most 1/25 of the bytes of three passes over the elements. A thread has >= kRowsInFlight rows.
inline int64_t pieces_of(int64_t rows, int64_t element_bytes, int64_t tiles, int64_t groups) {
  constexpr double kSumBytes = 2 * sizeof(double), kPasses = 3, kShare = 1. / 25;
  const auto cheap = static_cast<int64_t>(
      std::sqrt(static_cast<double>(rows * element_bytes) * (kShare * kPasses / kSumBytes)));
  return std::max<int64_t>(
      1, std::min({cheap, blocks_for(rows, kRowsInFlight * groups), blocks_for(kTargetBlocks, tiles)}));
}

// Returns the partition for `vector` channels per thread, which are 1 or divide `channels`.
inline GridPartition partition_of(int64_t rows, int64_t channels, int vector, int64_t element_bytes) {
  GridPartition grid{rows, channels, 1, rows, 1, 1, kThreads};
  while (grid.lanes < (vector == 1 ? kSingles : kVectors) && grid.lanes * vector < channels) grid.lanes *= 2;
  grid.tiles = blocks_for(channels, int64_t(grid.lanes) * vector);
  grid.groups = kThreads / grid.lanes;
  const int64_t length = blocks_for(rows, pieces_of(rows, element_bytes, grid.tiles, grid.groups));
  grid.length = blocks_for(length, grid.groups) * grid.groups;  // so that warps begin where sectors do
  grid.pieces = blocks_for(rows, grid.length);
  return grid;
}
template <class Shared> Grid grid_of(const GridPartition& grid) {
  return {grid.tiles * grid.pieces, kThreads, static_cast<int64_t>(sizeof(Shared))};
}

// Channels of a thread that computes sums: 16 bytes of elements, at most 4, because sums take registers.
template <class T> constexpr int kSummedChannels = std::min(4, kVectorSize<T>);

// Calls f<n>(grid) with n channels per thread: `most`, or 1 unless these are whole, aligned vectors of all
// arrays. Arrays have elements of type T or compute_t<T>; null is aligned.
template <int most, class T, class F, class... P>
void with_partition(int64_t rows, int64_t channels, F&& f, const T* x, const P*... more) {
  const bool fits =
      channels % most == 0 && is_aligned(x, most * sizeof(T)) && (is_aligned(more, most * sizeof(P)) && ...);
  if (fits)
    f.template operator()<most>(partition_of(rows, channels, most, sizeof(T)));
  else
    f.template operator()<1>(partition_of(rows, channels, 1, sizeof(T)));
}

template <class T, class Out>
void run_finish(const char* op, Out* first, Out* second, const T* x, int64_t rows, int64_t channels,
                const double* pieces, int64_t count, cudaStream_t stream) {
  launch(op, finish_sums<T, Out>, {blocks_for(channels, kSingles), kThreads, sizeof(double[kThreads])},
         stream, first, second, x, rows, channels, pieces, count);
}

}  // namespace channel_sums_detail
}  // namespace gradus::cuda
