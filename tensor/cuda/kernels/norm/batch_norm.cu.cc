// Batch norm forward over x [rows, channels] (channels innermost): mean[c] and var[c] (biased, divided by
// rows), y, and the update of running statistics. A first kernel sums moments per piece (range of rows) and
// channel, a second adds the pieces, finishes the statistics and normalizes; for one piece one kernel does
// both. Note [Sums by channel] in channel_sums.h. Results repeat bit for bit. Types: T in memory, A =
// compute_t<T> (f64 for f64, else f32) to compute in, f64 for sums. Functions queue on `stream`; their
// callers allocate all memory.
#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"

#include <algorithm>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/norm/channel_sums.h"
#include "gradus/tensor/ops/formulas/batch_norm.h"

namespace gradus::cuda {
namespace {

using namespace channel_sums_detail;  // NOLINT

// Adds to `shared.sums`, for each channel of the block's tile, the sums over the thread's rows of x[r, c] -
// x[0, c] and of its square. To lose no digits for a large mean, a stretch of 16 rows is summed in A about
// its own first element (`about`), then shifted to the pivot x[0, c] in f64. n: channels per thread.
template <class T, int n>
__device__ __forceinline__ void sum_moments_of_block(const T* x, const GridPartition& grid,
                                                     ThreadIndex thread,
                                                     SumShared<compute_t<T>, 1, n>& shared) {
  using A = compute_t<T>;
  auto& [pivot, sums] = shared;
  pivot.fill(grid, thread, [&](int64_t channel, A* v) { v[0] = widen(x[channel]); });
  sums.clear(grid);
  if (thread.channel < grid.channels) {
    for_each_stretch(thread, [&](int rows) {
      A about[n]{}, sum[n]{}, squares[n]{};
      bool is_first = true;
      Vector<T, n> v[kRowsInFlight];
      for_each_row<kRowsInFlight>(
          thread, rows, [&](int e, int64_t at) { v[e] = load<n>(x + at); },
          [&](int e, int64_t) {
#pragma unroll
            for (int k = 0; k < n; ++k) {
              const A element = widen(v[e].v[k]);
              if (is_first) about[k] = element;
              const A apart = element - about[k];
              sum[k] += apart;
              squares[k] = m::fma(apart, apart, squares[k]);
            }
            is_first = false;
          });
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const double apart = static_cast<double>(about[k]) - static_cast<double>(pivot.of(0, k, thread.lane));
        const double few = static_cast<double>(sum[k]), all = rows * apart;
        sums.add(grid, k, few + all, static_cast<double>(squares[k]) + apart * (2 * few + all));
      }
    });
  }
}

// pieces[p, 0, c] = sum_r x[r, c] - x[0, c] and pieces[p, 1, c] = sum_r (x[r, c] - x[0, c])^2, over rows r of
// piece p of x[rows, channels]. A block has one piece and a tile of channels, a thread n channels of every
// grid.groups-th row.
template <class T, int n>
__global__ void __launch_bounds__(kThreads, 4) moments(const T* x, GridPartition grid, double* pieces) {
  const ThreadIndex thread = thread_index<n>(grid);
  auto& shared = shared_memory<SumShared<compute_t<T>, 1, n>>();
  sum_moments_of_block(x, grid, thread, shared);
  write_sums(grid, thread, shared.sums, pieces);
}

// running[channel] += momentum * (batch - running[channel]). is_wide: `running` has elements A, else T.
template <class T>
__device__ __forceinline__ void move(void* running, bool is_wide, double batch, double momentum,
                                     int64_t channel) {
  using A = compute_t<T>;
  const auto moved = [&](A v) {
    return static_cast<A>(formulas::updated_statistic(static_cast<double>(v), batch, momentum));
  };
  if (is_wide) {
    A& v = static_cast<A*>(running)[channel];
    v = moved(v);
  } else {
    T& v = static_cast<T*>(running)[channel];
    v = convert<T>(moved(widen(v)));
  }
}
template <class T>
__device__ __forceinline__ void move_running(const RunningStatistics& running, int64_t channel,
                                             compute_t<T> mean, compute_t<T> var) {
  if (running.mean) {
    move<T>(running.mean, running.mean_is_wide, static_cast<double>(mean), running.momentum, channel);
    move<T>(running.var, running.var_is_wide, static_cast<double>(var) * running.var_factor, running.momentum,
            channel);
  }
  if (running.batches && channel == 0) ++*running.batches;
}

// Writes mean and var of a channel, and updates its running statistics. mean_of and var_of return them from
// the sums of x[r, c] - x[0, c] and of its square over all rows.
template <class T>
__device__ __forceinline__ void write_statistics(const BatchNorm<T>& s, const RunningStatistics& running,
                                                 int64_t channel, compute_t<T> mean, compute_t<T> var) {
  s.mean[channel] = mean, s.var[channel] = var;
  move_running<T>(running, channel, mean, var);
}
template <class T>
__device__ __forceinline__ compute_t<T> mean_of(const BatchNorm<T>& s, int64_t channel, const Pair& sums) {
  const double first = static_cast<double>(widen(s.x[channel]));
  return static_cast<compute_t<T>>(first + sums.first / static_cast<double>(s.rows));
}
template <class T> __device__ __forceinline__ compute_t<T> var_of(const BatchNorm<T>& s, const Pair& sums) {
  const auto rows = static_cast<double>(s.rows);
  return static_cast<compute_t<T>>(formulas::squares_about_mean(sums.first, sums.second, rows) / rows);
}

// Writes y for the block's rows and channels. `tile`: each channel's mean, scale, shift. adds: with residual.
template <class T, int n, bool adds>
__device__ __forceinline__ void normalize_block(const BatchNorm<T>& s, const GridPartition& grid,
                                                ThreadIndex thread, T* y, const T* residual,
                                                compute_t<T> negative_slope,
                                                const TileValues<compute_t<T>, 3, n>& tile) {
  using A = compute_t<T>;
  if (thread.channel >= grid.channels) return;
  A numbers[3][n];
  tile.take(thread, numbers);
  const A *mean = numbers[0], *scale = numbers[1], *shift = numbers[2];
  constexpr int kEach = kRowsInFlight / (n == 8 ? 2 : 1) / (adds ? 2 : 1);
  Vector<T, n> v[kEach], add[kEach];
  for_each_row<kEach>(
      thread, thread.rows,
      [&](int e, int64_t at) {
        v[e] = load<n>(s.x + at);
        if constexpr (adds) add[e] = load<n>(residual + at);
      },
      [&](int e, int64_t at) {
        Vector<T, n> out;
#pragma unroll
        for (int k = 0; k < n; ++k) {
          A value = formulas::normalized(A(widen(v[e].v[k])), mean[k], scale[k], shift[k]);
          if constexpr (adds) value += widen(add[e].v[k]);
          out.v[k] = convert<T>(formulas::leaky_relu(value, negative_slope));
        }
        store(y + at, out);
      });
}

// y[r, c] = leaky_relu((x[r, c] - mean[c]) * scale[c] + bias[c] + residual[r, c]), with scale = weight / sqrt(var
// + eps). `pieces` [count, 2, channels] are the moments, from which mean and var follow. Null: they are
// given. Threads map to [rows, channels] as in moments(). Blocks of piece 0 write mean and var.
template <class T, int n, bool adds>
__global__ void __launch_bounds__(kThreads, 4)
    normalize(BatchNorm<T> s, GridPartition grid, T* y, const T* residual, compute_t<T> negative_slope,
              RunningStatistics running, const double* pieces, int64_t count) {
  using A = compute_t<T>;
  const ThreadIndex thread = thread_index<n>(grid);
  auto& shared = shared_memory<ApplyShared<A, 3, n>>();
  Pair sums{};
  if (pieces) sums = sums_of<kWidth<n>>(pieces, count, thread.tile, grid.channels, shared.parts);
  shared.tile.fill(grid, thread, [&](int64_t channel, A* v) {
    v[0] = pieces ? mean_of(s, channel, sums) : s.mean[channel];
    const A var = pieces ? var_of(s, sums) : s.var[channel];
    if (pieces && thread.piece == 0) write_statistics(s, running, channel, v[0], var);
    v[1] = scale_of(s, channel, var);
    v[2] = shift_of(s, channel);
  });
  normalize_block<T, n, adds>(s, grid, thread, y, residual, negative_slope, shared.tile);
}

// moments() and normalize() for one piece: a block has all rows of its tile of channels.
template <class T, int n, bool adds>
__global__ void __launch_bounds__(kThreads, 4)
    normalize_at_once(BatchNorm<T> s, GridPartition grid, T* y, const T* residual,
                      compute_t<T> negative_slope, RunningStatistics running) {
  using A = compute_t<T>;
  const ThreadIndex thread = thread_index<n>(grid);
  auto& shared = shared_memory<FusedShared<A, 1, 3, n>>();
  sum_moments_of_block(s.x, grid, thread, shared.summing);
  shared.sums.fill(grid, thread, shared.summing.sums);
  shared.tile.fill(grid, thread, [&](int64_t channel, A* v) {
    const Pair sums = shared.sums.of(threadIdx.x);
    v[0] = mean_of(s, channel, sums);
    const A var = var_of(s, sums);
    write_statistics(s, running, channel, v[0], var);
    v[1] = scale_of(s, channel, var);
    v[2] = shift_of(s, channel);
  });
  normalize_block<T, n, adds>(s, grid, thread, y, residual, negative_slope, shared.tile);
}

// running[c] += momentum * (batch[c] - running[c]), for mean and var of [channels]. A thread has one channel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    update_running(RunningStatistics running, const compute_t<T>* mean, const compute_t<T>* var,
                   int64_t channels) {
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel < channels) move_running<T>(running, channel, mean[channel], var[channel]);
}

// Queues moments(), and returns the number of pieces that it writes.
template <class T>
int64_t sum_moments(const char* op, const T* x, int64_t rows, int64_t channels, double* pieces,
                    cudaStream_t stream) {
  int64_t count = 0;
  with_partition<kSummedChannels<T>>(
      rows, channels,
      [&]<int n>(const GridPartition& grid) {
        count = grid.pieces;
        launch(op, moments<T, n>, grid_of<SumShared<compute_t<T>, 1, n>>(grid), stream, x, grid, pieces);
      },
      x);
  return count;
}

// Queues normalize().
template <class T>
void run_normalize(const char* op, const BatchNorm<T>& s, T* y, const T* residual, double negative_slope,
                   const RunningStatistics& running, const double* pieces, int64_t count,
                   cudaStream_t stream) {
  with_partition<kVectorSize<T>>(
      s.rows, s.channels,
      [&]<int n>(const GridPartition& grid) {
        launch(op, residual ? normalize<T, n, true> : normalize<T, n, false>,
               grid_of<ApplyShared<compute_t<T>, 3, n>>(grid), stream, s, grid, y, residual,
               static_cast<compute_t<T>>(negative_slope), running, pieces, count);
      },
      s.x, y, residual);
}
// If the rows make only one piece, queues normalize_at_once() and returns true. Otherwise returns false.
template <class T>
bool normalized_at_once(const char* op, const BatchNorm<T>& s, T* y, const T* residual, double negative_slope,
                        const RunningStatistics& running, cudaStream_t stream) {
  bool is_one = false;
  with_partition<kSummedChannels<T>>(
      s.rows, s.channels,
      [&]<int n>(const GridPartition& grid) {
        is_one = grid.pieces == 1;
        if (is_one)
          launch(op, residual ? normalize_at_once<T, n, true> : normalize_at_once<T, n, false>,
                 grid_of<FusedShared<compute_t<T>, 1, 3, n>>(grid), stream, s, grid, y, residual,
                 static_cast<compute_t<T>>(negative_slope), running);
      },
      s.x, y, residual);
  return is_one;
}

}  // namespace

int64_t batch_norm_workspace(int64_t rows, int64_t channels) {
  // The maximum over all dtypes: the number of pieces grows with the size of elements (8: f64), and depends
  // on the vector length (1 or 2 channels of a thread).
  const int64_t most =
      std::max(partition_of(rows, channels, 1, 8).pieces, partition_of(rows, channels, 2, 8).pieces);
  return most * channels * static_cast<int64_t>(2 * sizeof(double));
}

template <class T>
void batch_norm(const char* op, const BatchNorm<T>& s, T* y, const T* residual, double negative_slope,
                const RunningStatistics& running, void* workspace, cudaStream_t stream) {
  if (normalized_at_once(op, s, y, residual, negative_slope, running, stream)) return;
  auto* const pieces = static_cast<double*>(workspace);
  const int64_t count = sum_moments(op, s.x, s.rows, s.channels, pieces, stream);
  run_normalize(op, s, y, residual, negative_slope, running, pieces, count, stream);
}
template <class T> void batch_norm_apply(const char* op, const BatchNorm<T>& s, T* y, cudaStream_t stream) {
  run_normalize<T>(op, s, y, nullptr, 1, {}, nullptr, 0, stream);
}
template <class T>
void batch_statistics(const char* op, double* mean, double* m2, const T* x, int64_t rows, int64_t channels,
                      void* workspace, cudaStream_t stream) {
  auto* const pieces = static_cast<double*>(workspace);
  const int64_t count = sum_moments(op, x, rows, channels, pieces, stream);
  run_finish(op, mean, m2, x, rows, channels, pieces, count, stream);
}
template <class T>
void batch_norm_update(const char* op, const RunningStatistics& running, const compute_t<T>* mean,
                       const compute_t<T>* var, int64_t channels, cudaStream_t stream) {
  launch(op, update_running<T>, {blocks_for(channels, kThreads), kThreads}, stream, running, mean, var,
         channels);
}

#define GRADUS_INSTANTIATE(T)                                                                                \
  template void batch_norm(const char*, const BatchNorm<T>&, T*, const T*, double, const RunningStatistics&, \
                           void*, cudaStream_t);                                                             \
  template void batch_norm_apply(const char*, const BatchNorm<T>&, T*, cudaStream_t);                        \
  template void batch_statistics(const char*, double*, double*, const T*, int64_t, int64_t, void*,           \
                                 cudaStream_t);                                                              \
  template void batch_norm_update<T>(const char*, const RunningStatistics&, const compute_t<T>*,             \
                                     const compute_t<T>*, int64_t, cudaStream_t);
GRADUS_INSTANTIATE(double)
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(f16)
GRADUS_INSTANTIATE(bf16)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
