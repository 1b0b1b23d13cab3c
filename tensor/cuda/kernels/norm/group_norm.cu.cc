// CUDA kernels of group and instance norm with first and second gradients on [samples, rows, channels], and of sums
// over windows of channels. Each pass of group norm is three launches: sums over the rows of each sample and
// channel, by pieces of rows; for each sample and group, from these sums the statistics, and coefficients for each
// channel; the elements of the result. Gradients of weight and bias are summed over the samples in a fourth launch.
// Sums have a fixed order: 16 rows are added in T, the rest in f64. The formulas are those of the CPU
// (tensor/cpu/norm/group_norm.cc).
#include "gradus/tensor/cuda/kernels/norm/group_norm.h"

#include <algorithm>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/norm/channel_sums.h"
#include "gradus/tensor/cuda/kernels/thread_groups.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

namespace column_sums = channel_sums_detail;
using column_sums::for_each_row;
using column_sums::for_each_stretch;

constexpr int kThreads = 256;
constexpr int kRowsAtOnce = 4;  // rows that a thread loads before it uses the first

// How blocks divide [samples, rows, channels]. A block has a piece of the rows of one sample and a tile of `lanes`
// neighboring channels; its threads have one channel each, of every (kThreads / lanes)-th row.
struct SamplePartition {
  int64_t samples, rows, channels;
  int64_t tiles, pieces, length;  // length: rows of a piece
  int64_t lanes;

  int64_t blocks() const { return samples * pieces * tiles; }
};
SamplePartition partition_of(int64_t samples, int64_t rows, int64_t channels) {
  SamplePartition p{samples, rows, channels, 1, 1, rows, 1};
  while (p.lanes < kWarp && p.lanes < channels) p.lanes *= 2;
  p.tiles = blocks_for(channels, p.lanes);
  const int64_t row_groups = kThreads / p.lanes;
  const int64_t target_pieces = blocks_for(column_sums::kTargetBlocks, samples * p.tiles);
  const int64_t max_pieces = blocks_for(rows, column_sums::kStretch * row_groups);
  p.length = blocks_for(rows, std::min(target_pieces, max_pieces));
  p.pieces = blocks_for(rows, p.length);
  return p;
}

// The channel and the rows of the calling thread. index.piece is numbered over all samples.
struct SampleThread {
  column_sums::ThreadIndex index;
  int64_t sample;
};
__device__ __forceinline__ SampleThread sample_thread(const SamplePartition& p) {
  SampleThread t;
  const int64_t lane = threadIdx.x % p.lanes, group = threadIdx.x / p.lanes, groups = kThreads / p.lanes;
  const int64_t piece = blockIdx.x / p.tiles, first = piece % p.pieces * p.length;
  t.sample = piece / p.pieces;
  t.index.tile = blockIdx.x % p.tiles * p.lanes;
  t.index.channel = t.index.tile + lane;
  t.index.piece = static_cast<int>(piece), t.index.lane = static_cast<int>(lane);
  t.index.rows = (std::min(p.rows, first + p.length) - first - group + groups - 1) / groups;
  t.index.at = (t.sample * p.rows + first + group) * p.channels + t.index.channel;
  t.index.stride = groups * p.channels;
  if (t.index.channel >= p.channels) t.index.rows = 0;
  return t;
}

// A pass (Forward, Backward, DoubleBackward) is a policy class of the three kernels below. It defines
//   kSums, add(thread, rows, pivot, sums)        sums for each sample and channel: adds at most 16 rows
//   kCoefficients, combine(group, coefficients)  coefficients for each sample and channel, from the sums of a group
//   Values, load(at), store(at, values, k)       an element of the results, from k = the coefficients of its channel
// `pivot` is near the channel's elements, so that a large mean costs no precision.

// sums[piece, k, c] = sum k over the rows of the piece, for k < kSums. A block has a piece and a tile of channels, a
// thread one channel.
template <class Pass>
__global__ void __launch_bounds__(kThreads, 4) sum_rows(SamplePartition p, Pass d, double* sums) {
  constexpr int kSums = Pass::kSums;
  SampleThread thread = sample_thread(p);
  double local[kSums]{};
  if (thread.index.rows > 0) {
    const auto pivot = d.pivot(thread.sample, thread.index.channel);
    for_each_stretch(thread.index, [&](int rows) { d.add(thread.index, rows, pivot, local); });
  }
  auto& shared = shared_memory<double[kThreads]>();
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    __syncthreads();
    shared[threadIdx.x] = local[k];
    __syncthreads();
    if (threadIdx.x >= p.lanes || thread.index.channel >= p.channels) continue;
    double sum = 0;
    for (int64_t t = threadIdx.x; t < kThreads; t += p.lanes) sum += shared[t];
    sums[(int64_t{thread.index.piece} * kSums + k) * p.channels + thread.index.channel] = sum;
  }
}

constexpr int kMaxMerges = 7;
struct GroupScratchSums {
  double v[kMaxMerges][kBlockThreads];
};

// A group of channels of one sample, which a thread group combines.
struct ChannelGroup {
  const ThreadGroups& threads;
  int64_t sample, index, begin, count;  // index in [samples, groups]; the first channel, and their number
  int rank;                             // of the calling thread
  bool exists;                          // false: one of the block's thread groups has no group of channels
  double* sums;                         // [kSums, channels] of the sample
  int64_t channels;
  GroupScratchSums& scratch;

  // Calls f(c) for the channels of the calling thread.
  template <class F> __device__ __forceinline__ void for_each_channel(F&& f) const {
    for (int64_t i = rank; exists && i < count; i += threads.size) f(begin + i);
  }
  __device__ __forceinline__ double sum(int k, int64_t c) const { return sums[k * channels + c]; }
  // Returns the sum of `value` over the thread group. All threads of the block call it, once for each number < 7.
  __device__ __forceinline__ double merge(int number, double value) const {
    return merge_group(threads, value, scratch.v[number], AddOp{});
  }
};

// Adds the sums of all pieces of a sample, in their order, and calls d.combine(), which sets coefficients[j, n, c]. A
// thread group has a group of channels of sample n; the sums replace those of the sample's first piece.
template <class Pass, class T>
__global__ void __launch_bounds__(kBlockThreads)
    combine_channels(SamplePartition p, Pass d, ThreadGroups threads, int64_t groups, double* sums,
                     T* coefficients) {
  const ThreadIndex thread = thread_index(threads);
  const int64_t index = thread.limit > 0 ? thread.row : 0, sample = index / groups;
  const ChannelGroup group{threads,
                           sample,
                           index,
                           index % groups * threads.n,
                           threads.n,
                           thread.rank,
                           thread.limit > 0,
                           sums + sample * p.pieces * Pass::kSums * p.channels,
                           p.channels,
                           shared_memory<GroupScratchSums>()};
  group.for_each_channel([&](int64_t c) {
#pragma unroll
    for (int k = 0; k < Pass::kSums; ++k) {
      double sum = 0;
#pragma unroll 4
      for (int64_t piece = 0; piece < p.pieces; ++piece)
        sum += group.sums[(piece * Pass::kSums + k) * p.channels + c];
      group.sums[k * p.channels + c] = sum;
    }
  });
  d.combine(group, [&](int j, int64_t c, double value) {
    coefficients[(j * p.samples + sample) * p.channels + c] = static_cast<T>(value);
  });
}

// Computes the elements. Threads map to [samples, rows, channels] as in sum_rows().
template <class Pass, class T>
__global__ void __launch_bounds__(kThreads, 4) apply_rows(SamplePartition p, Pass d, const T* coefficients) {
  SampleThread thread = sample_thread(p);
  if (thread.index.rows <= 0) return;
  T k[Pass::kCoefficients];
#pragma unroll
  for (int j = 0; j < Pass::kCoefficients; ++j)
    k[j] = coefficients[(j * p.samples + thread.sample) * p.channels + thread.index.channel];
  typename Pass::Values v[kRowsAtOnce];
  for_each_row<kRowsAtOnce>(
      thread.index, thread.index.rows, [&](int e, int64_t at) { v[e] = d.load(at); },
      [&](int e, int64_t at) { d.store(at, v[e], k); });
}

template <class T> __device__ __forceinline__ double or_value(const T* p, int64_t c, double value) {
  return p ? static_cast<double>(p[c]) : value;
}

// y = (x - mean) / sqrt(var + eps) * weight + bias = (x - high) * scale + shift, where high is the mean rounded to T.
template <class T> struct Forward {
  static constexpr int kSums = 2, kParameters = 0, kCoefficients = 3;
  using Values = T;
  GroupNorm<T> s;
  T* y;
  const T* bias;

  __device__ __forceinline__ T pivot(int64_t sample, int64_t c) const {
    return s.x[sample * s.rows * s.channels + c];
  }
  // Sums of x - pivot and of its square: first relative to the first of the 16 rows, then shifted to the pivot.
  __device__ __forceinline__ void add(column_sums::ThreadIndex& thread, int rows, T pivot,
                                      double* sums) const {
    T v[kRowsAtOnce], reference = 0, sum = 0, squares = 0;
    bool is_first = true;
    for_each_row<kRowsAtOnce>(
        thread, rows, [&](int e, int64_t at) { v[e] = s.x[at]; },
        [&](int e, int64_t) {
          if (is_first) reference = v[e];
          is_first = false;
          const T difference = v[e] - reference;
          sum += difference, squares += difference * difference;
        });
    const double offset = static_cast<double>(reference) - static_cast<double>(pivot);
    const double local_sum = static_cast<double>(sum), offset_sum = rows * offset;
    sums[0] += local_sum + offset_sum;
    sums[1] += static_cast<double>(squares) + offset * (2 * local_sum + offset_sum);
  }
  // Merges the channels by Chan et al.'s parallel variance, relative to the pivot of the first channel.
  template <class Set> __device__ __forceinline__ void combine(const ChannelGroup& g, Set&& set) const {
    const double first = static_cast<double>(pivot(g.sample, g.begin)), rows = static_cast<double>(s.rows);
    const auto offset_of = [&](int64_t c) {
      return g.sum(0, c) / rows + (static_cast<double>(pivot(g.sample, c)) - first);
    };
    double sum = 0, squares = 0;
    g.for_each_channel([&](int64_t c) { sum += offset_of(c); });
    const double from_first = g.merge(0, sum) / static_cast<double>(g.count);
    g.for_each_channel([&](int64_t c) {
      const double channel_sum = g.sum(0, c), delta = offset_of(c) - from_first;
      squares += g.sum(1, c) - channel_sum * channel_sum / rows + rows * delta * delta;
    });
    const double mean = first + from_first;
    double var = g.merge(1, squares) / (rows * static_cast<double>(g.count));
    if (var < 0) var = 0;  // negative by rounding; NaN stays NaN
    if (g.exists && g.rank == 0) s.mean[g.index] = mean, s.var[g.index] = var;
    const double high = static_cast<double>(static_cast<T>(mean)), inv_std = 1 / m::sqrt(var + s.eps);
    g.for_each_channel([&](int64_t c) {
      const double scale = or_value(s.weight, c, 1) * inv_std;
      set(0, c, high), set(1, c, scale), set(2, c, (high - mean) * scale + or_value(bias, c, 0));
    });
  }
  __device__ __forceinline__ T load(int64_t at) const { return s.x[at]; }
  __device__ __forceinline__ void store(int64_t at, T v, const T* k) const {
    y[at] = (v - k[0]) * k[1] + k[2];
  }
};

// Returns the mean of channel c's group, rounded to T. The gradients sum differences to it.
template <class T>
__device__ __forceinline__ T rounded_mean(const GroupNorm<T>& s, int64_t sample, int64_t c) {
  return static_cast<T>(s.mean[sample * s.groups + c / (s.channels / s.groups)]);
}
// The statistics of a group: 1 / std, and `high`, the mean rounded to T, with low = high - mean, so that x - mean =
// (x - high) + low.
struct GroupStats {
  double inv_std, low, high;
};
template <class T> __device__ __forceinline__ GroupStats stats_of(const GroupNorm<T>& s, int64_t index) {
  const double mean = s.mean[index], high = static_cast<double>(static_cast<T>(mean));
  return {1 / m::sqrt(s.var[index] + s.eps), high - mean, high};
}

// dx = (dy w - mean(dy w) - z mean(dy w z)) / std, where z is the normalized x and means are over a group. The sums of
// dweight and dbias over a sample go to parameters[n, 0, c] and [n, 1, c].
template <class T> struct Backward {
  static constexpr int kSums = 2, kParameters = 2, kCoefficients = 4;
  struct Values {
    T dy, x;
  };
  GroupNorm<T> s;
  T* dx;
  const T* dy;
  double* parameters;

  __device__ __forceinline__ T pivot(int64_t sample, int64_t c) const { return rounded_mean(s, sample, c); }
  __device__ __forceinline__ void add(column_sums::ThreadIndex& thread, int rows, T high,
                                      double* sums) const {
    T sum = 0, centered = 0;
    Values v[kRowsAtOnce];
    for_each_row<kRowsAtOnce>(
        thread, rows, [&](int e, int64_t at) { v[e] = load(at); },
        [&](int e, int64_t) { sum += v[e].dy, centered += v[e].dy * (v[e].x - high); });
    sums[0] += static_cast<double>(sum), sums[1] += static_cast<double>(centered);
  }
  template <class Set> __device__ __forceinline__ void combine(const ChannelGroup& g, Set&& set) const {
    const auto [inv_std, low, high] = stats_of(s, g.index);
    const double size = static_cast<double>(s.rows) * static_cast<double>(g.count);
    double total = 0, normal_total = 0;
    g.for_each_channel([&](int64_t c) {
      const double sum = g.sum(0, c), normal_sum = (g.sum(1, c) + low * sum) * inv_std;
      double* const of_channel = parameters + g.sample * 2 * s.channels + c;
      of_channel[0] = normal_sum, of_channel[s.channels] = sum;
      total += sum * or_value(s.weight, c, 1), normal_total += normal_sum * or_value(s.weight, c, 1);
    });
    const double mean = g.merge(0, total) / size,
                 x_coefficient = g.merge(1, normal_total) / size * inv_std * inv_std;
    g.for_each_channel([&](int64_t c) {
      set(0, c, high), set(1, c, or_value(s.weight, c, 1) * inv_std);
      set(2, c, -x_coefficient), set(3, c, -(mean * inv_std + low * x_coefficient));
    });
  }
  __device__ __forceinline__ Values load(int64_t at) const { return {dy[at], s.x[at]}; }
  __device__ __forceinline__ void store(int64_t at, const Values& v, const T* k) const {
    dx[at] = v.dy * k[1] + (v.x - k[0]) * k[2] + k[3];
  }
};

// The gradients of the backward, by the formulas above group_norm_double_backward_cpu in tensor/cpu/norm/group_norm.cc,
// with a = ddx and r = 1 / std. The sum of dweight over a sample goes to parameters[n, 0, c].
template <class T> struct DoubleBackward {
  static constexpr int kSums = 5, kParameters = 2, kCoefficients = 8;
  struct Values {
    T ddx, dy, x;
  };
  GroupNorm<T> s;
  T *ddy, *dx;
  const T *ddx, *ddweight, *ddbias, *dy;
  double* parameters;

  __device__ __forceinline__ T pivot(int64_t sample, int64_t c) const { return rounded_mean(s, sample, c); }
  // Sums of a, a (x - high), dy, dy (x - high), a dy.
  __device__ __forceinline__ void add(column_sums::ThreadIndex& thread, int rows, T high,
                                      double* sums) const {
    T local[kSums]{};
    Values v[kRowsAtOnce];
    for_each_row<kRowsAtOnce>(
        thread, rows, [&](int e, int64_t at) { v[e] = load(at); },
        [&](int e, int64_t) {
          const T a = v[e].ddx, g = v[e].dy, difference = v[e].x - high;
          local[0] += a, local[1] += a * difference;
          local[2] += g, local[3] += g * difference, local[4] += a * g;
        });
#pragma unroll
    for (int k = 0; k < kSums; ++k) sums[k] += static_cast<double>(local[k]);
  }
  template <class Set> __device__ __forceinline__ void combine(const ChannelGroup& g, Set&& set) const {
    const auto [r, low, high] = stats_of(s, g.index);
    const double size = static_cast<double>(s.rows) * static_cast<double>(g.count);
    const auto a_z = [&](int64_t c) { return (g.sum(1, c) + low * g.sum(0, c)) * r; };
    const auto dy_z = [&](int64_t c) { return (g.sum(3, c) + low * g.sum(2, c)) * r; };
    double mean_a = 0, mean_az = 0, mean_u = 0, mean_uz = 0, mean_au = 0, mean_q = 0, mean_qz = 0;
    g.for_each_channel([&](int64_t c) {
      const double weight = or_value(s.weight, c, 1), q = or_value(ddweight, c, 0);
      mean_a += g.sum(0, c), mean_az += a_z(c);
      mean_u += weight * g.sum(2, c), mean_uz += weight * dy_z(c), mean_au += weight * g.sum(4, c);
      mean_q += q * g.sum(2, c), mean_qz += q * dy_z(c);
    });
    mean_a = g.merge(0, mean_a) / size, mean_az = g.merge(1, mean_az) / size;
    mean_u = g.merge(2, mean_u) / size, mean_uz = g.merge(3, mean_uz) / size;
    mean_au = g.merge(4, mean_au) / size;
    mean_q = g.merge(5, mean_q) / size, mean_qz = g.merge(6, mean_qz) / size;
    const double mean_h = mean_q - r * (mean_a * mean_uz + mean_u * mean_az);
    const double mean_hz = mean_qz - 2 * r * mean_az * mean_uz;
    const double std_gradient = mean_au - mean_a * mean_u - mean_az * mean_uz;
    const double dx_x_coefficient = -r * r * (mean_hz + r * std_gradient);
    g.for_each_channel([&](int64_t c) {
      const double weight = or_value(s.weight, c, 1), q = or_value(ddweight, c, 0);
      const double x_coefficient = r * (q - weight * r * mean_az);
      set(0, c, high), set(1, c, weight * r), set(2, c, x_coefficient);
      set(3, c, low * x_coefficient - weight * r * mean_a + or_value(ddbias, c, 0));
      set(4, c, x_coefficient), set(5, c, -r * r * mean_uz);
      set(6, c, dx_x_coefficient), set(7, c, low * dx_x_coefficient - r * mean_h);
      double* const of_channel = parameters + g.sample * 2 * s.channels + c;
      of_channel[0] = r * (g.sum(4, c) - mean_a * g.sum(2, c) - mean_az * dy_z(c));
      of_channel[s.channels] = 0;
    });
  }
  __device__ __forceinline__ Values load(int64_t at) const { return {ddx[at], dy[at], s.x[at]}; }
  __device__ __forceinline__ void store(int64_t at, const Values& v, const T* k) const {
    const T difference = v.x - k[0];
    ddy[at] = v.ddx * k[1] + difference * k[2] + k[3];
    dx[at] = v.dy * k[4] + v.ddx * k[5] + difference * k[6] + k[7];
  }
};

// The parts of the workspace of a pass: sums [samples, pieces, kSums, channels], parameters [samples, kParameters,
// channels], and coefficients [kCoefficients, samples, channels].
template <class Pass, class T> struct Workspace {
  SamplePartition p;
  double *sums, *parameters;
  T* coefficients;

  Workspace(const GroupNorm<T>& s, void* memory)
      : p(partition_of(s.samples, s.rows, s.channels)),
        sums(static_cast<double*>(memory)),
        parameters(sums + p.samples * p.pieces * Pass::kSums * p.channels),
        coefficients(reinterpret_cast<T*>(parameters + p.samples * Pass::kParameters * p.channels)) {}
};
template <class Pass, class T> int64_t workspace_bytes(int64_t samples, int64_t rows, int64_t channels) {
  const int64_t doubles = Pass::kSums * partition_of(samples, rows, channels).pieces + Pass::kParameters;
  return samples * channels * (doubles * int64_t{sizeof(double)} + Pass::kCoefficients * int64_t{sizeof(T)});
}

// Queues the launches of a pass.
template <class Pass, class T>
void launch_pass(const char* op, const Pass& d, int64_t groups, const Workspace<Pass, T>& w,
                 cudaStream_t stream) {
  const SamplePartition& p = w.p;
  const ThreadGroups threads = thread_groups_for(p.samples * groups, p.channels / groups, 1, 1, 1);
  launch(op, sum_rows<Pass>, {p.blocks(), kThreads, sizeof(double[kThreads])}, stream, p, d, w.sums);
  launch(op, combine_channels<Pass, T>, {threads.blocks(), kBlockThreads, sizeof(GroupScratchSums)}, stream,
         p, d, threads, groups, w.sums, w.coefficients);
  launch(op, apply_rows<Pass, T>, {p.blocks(), kThreads}, stream, p, d, w.coefficients);
}
// dweight[c] and dbias[c] = the sums of parameters[n, 0, c] and parameters[n, 1, c] over the samples.
template <class Pass, class T>
void sum_samples(const char* op, T* dweight, T* dbias, const Workspace<Pass, T>& w, cudaStream_t stream) {
  const T* const none = nullptr;
  column_sums::run_finish(op, dweight, dbias, none, w.p.samples, w.p.channels, w.parameters, w.p.samples,
                          stream);
}

// y[r, c] = x[r, c] + x[r, c - 1] + ... + x[r, c - before] + x[r, c + 1] + ... + x[r, c + after], as far as there are
// such channels. A thread has one element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_window(T* y, const T* x, int64_t count, int64_t channels, int64_t before, int64_t after) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t c = i % channels, below = std::min(before, c), above = std::min(after, channels - 1 - c);
  T sum = x[i];
  for (int64_t d = 1; d <= below; ++d) sum += x[i - d];
  for (int64_t d = 1; d <= above; ++d) sum += x[i + d];
  y[i] = sum;
}

}  // namespace

template <class T> int64_t group_norm_workspace(int64_t samples, int64_t rows, int64_t channels) {
  return workspace_bytes<Forward<T>, T>(samples, rows, channels);
}
template <class T> int64_t group_norm_backward_workspace(int64_t samples, int64_t rows, int64_t channels) {
  return workspace_bytes<Backward<T>, T>(samples, rows, channels);
}
template <class T>
int64_t group_norm_double_backward_workspace(int64_t samples, int64_t rows, int64_t channels) {
  return workspace_bytes<DoubleBackward<T>, T>(samples, rows, channels);
}

template <class T>
void group_norm(const char* op, const GroupNorm<T>& s, T* y, const T* bias, void* workspace,
                cudaStream_t stream) {
  launch_pass(op, Forward<T>{s, y, bias}, s.groups, Workspace<Forward<T>, T>(s, workspace), stream);
}

template <class T>
void group_norm_backward(const char* op, const GroupNorm<T>& s, T* dx, T* dweight, T* dbias, const T* dy,
                         void* workspace, cudaStream_t stream) {
  const Workspace<Backward<T>, T> w(s, workspace);
  launch_pass(op, Backward<T>{s, dx, dy, w.parameters}, s.groups, w, stream);
  sum_samples(op, dweight, dbias, w, stream);
}

template <class T>
void group_norm_double_backward(const char* op, const GroupNorm<T>& s, T* ddy, T* dx, T* dweight,
                                const T* ddx, const T* ddweight, const T* ddbias, const T* dy,
                                void* workspace, cudaStream_t stream) {
  const Workspace<DoubleBackward<T>, T> w(s, workspace);
  launch_pass(op, DoubleBackward<T>{s, ddy, dx, ddx, ddweight, ddbias, dy, w.parameters}, s.groups, w,
              stream);
  // There is no dbias; its sums of zeros overwrite the coefficients, which are no longer needed.
  sum_samples(op, dweight, w.coefficients, w, stream);
}

template <class T>
void channel_window_sum(const char* op, T* y, const T* x, int64_t rows, int64_t channels, int64_t before,
                        int64_t after, cudaStream_t stream) {
  const int64_t count = rows * channels;
  if (count > 0)
    launch(op, sum_window<T>, {blocks_for(count, kThreads), kThreads}, stream, y, x, count, channels, before,
           after);
}

#define GRADUS_INSTANTIATE(T)                                                                                \
  template int64_t group_norm_workspace<T>(int64_t, int64_t, int64_t);                                       \
  template int64_t group_norm_backward_workspace<T>(int64_t, int64_t, int64_t);                              \
  template int64_t group_norm_double_backward_workspace<T>(int64_t, int64_t, int64_t);                       \
  template void group_norm(const char*, const GroupNorm<T>&, T*, const T*, void*, cudaStream_t);             \
  template void group_norm_backward(const char*, const GroupNorm<T>&, T*, T*, T*, const T*, void*,           \
                                    cudaStream_t);                                                           \
  template void group_norm_double_backward(const char*, const GroupNorm<T>&, T*, T*, T*, const T*, const T*, \
                                           const T*, const T*, void*, cudaStream_t);                         \
  template void channel_window_sum(const char*, T*, const T*, int64_t, int64_t, int64_t, int64_t,            \
                                   cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
