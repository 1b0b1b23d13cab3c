// Note [Sums by channel]
// [rows, channels] is cut into tiles of channels and pieces of rows. A block has one of each: its threads lie
// side by side over the tile, a vector of channels each, and take turns in the rows. The first kernel writes
// two sums of each piece and channel. The second reads those of its tile again in each block, adds
// them in the order of pieces, and goes over its piece. So a batch norm takes two launches, and blocks wait
// for nobody. There are so few pieces that their sums are 1/25 of the elements at most.
//
// Where rows are so few that there is one piece, a block has all it needs, and one launch does both. The sums
// are the same.
//
// A thread adds few rows in the elements' type, then in f64. Moments are sums of differences: those of few
// rows from the first of these, those of the whole from the first row. So a large mean costs no digits.
#include "gradus/tensor/cuda/kernels/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "gradus/tensor/cuda/kernel.h"
#include "gradus/tensor/ops/formulas/batch_norm.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 8;        // of a tile
constexpr int kSingles = 32;       // channels of a tile that are not taken as vectors
constexpr int kStretch = 16;       // rows that a thread adds in the elements' type
constexpr int kUnderWay = 4;       // rows that a thread loads before it uses the first
constexpr int64_t kWanted = 1024;  // blocks that fill a device

// Channels of a tile.
template <int n> constexpr int kWidth = n == 1 ? kSingles : kVectors * n;

// Without padding: its bytes could look like an address, which the emulated device moves.
struct Cut {
  int64_t rows, channels, pieces, length;  // of a piece
  int64_t tiles;
  int lanes, groups;  // threads side by side, and how often they are there
};

// Where a thread works.
struct Place {
  int64_t channel;    // the first of its own
  int64_t rows;       // how many
  int64_t at, apart;  // an element: the first row's; from one row's to the next
  int64_t tile;       // the first channel of the block
  int piece, lane;
};
template <int n> __device__ __forceinline__ Place place_of(const Cut& cut) {
  Place me;
  me.lane = thread_index() % cut.lanes;
  me.piece = static_cast<int>(block_index() / cut.tiles);
  me.tile = block_index() % cut.tiles * (cut.lanes * n);
  me.channel = me.tile + me.lane * n;
  const int64_t row = me.piece * cut.length + thread_index() / cut.lanes;
  me.rows = (std::min(cut.rows, (me.piece + 1) * cut.length) - row + cut.groups - 1) / cut.groups;
  me.at = row * cut.channels + me.channel;
  me.apart = cut.groups * cut.channels;
  return me;
}

template <int n, class T> __device__ __forceinline__ Vector<T, n> load(const T* p) {
  if constexpr (n == 1)
    return {*p};
  else
    return load_vector<Vector<T, n>>(p);
}
template <int n, class T> __device__ __forceinline__ void store(T* p, const Vector<T, n>& v) {
  if constexpr (n == 1)
    *p = v.v[0];
  else
    store_vector(p, v);
}

// Calls load(e, at) and use(e, at) for the elements of so many rows, and moves on behind these. Several are
// loaded before the first is used.
template <int each, class N, class Load, class Use>
__device__ __forceinline__ void for_each_row(Place& me, N rows, Load&& load, Use&& use) {
#pragma unroll 1
  for (; each <= rows; rows -= each) {
    int64_t at = me.at;
#pragma unroll
    for (int e = 0; e < each; ++e) load(e, at), at += me.apart;
#pragma unroll
    for (int e = 0; e < each; ++e) use(e, me.at), me.at += me.apart;
  }
#pragma unroll 1
  for (; rows > 0; --rows) load(0, me.at), use(0, me.at), me.at += me.apart;
}

// Calls f(rows) for stretches of the thread's rows.
template <class F> __device__ __forceinline__ void for_each_stretch(const Place& me, F&& f) {
#pragma unroll 1
  for (int64_t left = me.rows; left > 0; left -= kStretch)
    f(static_cast<int>(std::min<int64_t>(left, kStretch)));
}

// Two sums for each channel of each thread. Rows of threads are so far apart that no two meet in a bank.
template <int n> struct Sums {
  double v[2 * n * (kThreads + (n == 1 ? kSingles : kVectors))];

  __device__ __forceinline__ double& of(const Cut& cut, int k, int thread) {
    return v[k * (kThreads + cut.lanes) + thread];
  }
  __device__ __forceinline__ void clear(const Cut& cut) {
#pragma unroll
    for (int k = 0; k < 2 * n; ++k) of(cut, k, thread_index()) = 0;
  }
  __device__ __forceinline__ void add(const Cut& cut, int k, double first, double second) {
    of(cut, k, thread_index()) += first;
    of(cut, n + k, thread_index()) += second;
  }
};
struct Pair {
  double first, second;
};
// Calls f(i, k, sum) once for each sum of the block: for sum i, the first or the second, of channel k of
// those that the calling thread has. All threads call it.
template <int n, class F>
__device__ __forceinline__ void take_sums(const Cut& cut, const Place& me, Sums<n>& sums, F&& f) {
  sync_block();
  for (int k = thread_index() / cut.lanes; k < 2 * n; k += cut.groups) {
    double sum = 0;
    for (int g = 0; g < cut.groups; ++g) sum += sums.of(cut, k, g * cut.lanes + me.lane);
    if (me.channel < cut.channels) f(k / n, k % n, sum);
  }
}
// Writes the sums of a block: [piece, 2, channels]. All threads call it.
template <int n>
__device__ __forceinline__ void write_sums(const Cut& cut, const Place& me, Sums<n>& sums, double* pieces) {
  take_sums(cut, me, sums, [&](int i, int k, double sum) {
    pieces[(int64_t(me.piece) * 2 + i) * cut.channels + me.channel + k] = sum;
  });
}
// The sums of a block's channels, for all its threads. All threads call it.
template <int n> struct SumsOfTile {
  double v[2][kWidth<n>];

  __device__ __forceinline__ void fill(const Cut& cut, const Place& me, Sums<n>& sums) {
    take_sums(cut, me, sums, [&](int i, int k, double sum) { v[i][me.lane * n + k] = sum; });
    sync_block();
  }
  __device__ __forceinline__ Pair of(int channel) const { return {v[0][channel], v[1][channel]}; }
};

// Adds the sums of all pieces. Returns those of channel thread_index() % width of the tile. All threads call.
template <int width>
__device__ __forceinline__ Pair sums_of(const double* pieces, int64_t count, int64_t tile, int64_t channels,
                                        double (&parts)[kThreads]) {
  constexpr int kBoth = 2 * width, kParts = kThreads / kBoth;
  const int mine = thread_index() % kBoth;
  const int64_t channel = tile + mine % width;
  double sum = 0;
  if (channel < channels) {
#pragma unroll 4
    for (int64_t p = thread_index() / kBoth; p < count; p += kParts)
      sum += pieces[(p * 2 + mine / width) * channels + channel];
  }
  parts[thread_index()] = sum;
  sync_block();
  Pair all{0, 0};
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    all.first += parts[p * kBoth + thread_index() % width];
    all.second += parts[p * kBoth + width + thread_index() % width];
  }
  return all;
}

// Numbers of the channels of a tile. Those of a thread are so far apart that no two threads meet in a bank.
template <class A, int count, int n> struct OfTile {
  static constexpr int kApart = n == 1 ? kSingles : n == 8 ? 12 : kVectors;
  A v[count][n * kApart];

  // Calls f(channel, numbers) once for each channel. All threads call it.
  template <class F> __device__ __forceinline__ void fill(const Cut& cut, const Place& me, F&& f) {
    const int c = thread_index();
    if (c < kWidth<n> && me.tile + c < cut.channels) {
      A numbers[count];
      f(me.tile + c, numbers);
#pragma unroll
      for (int i = 0; i < count; ++i) v[i][c % n * kApart + c / n] = numbers[i];
    }
    sync_block();
  }
  // Number i of channel k of a thread's.
  __device__ __forceinline__ A of(int i, int k, int lane) const { return v[i][k * kApart + lane]; }
  __device__ __forceinline__ void take(const Place& me, A (&mine)[count][n]) const {
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int k = 0; k < n; ++k) mine[i][k] = of(i, k, me.lane);
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

template <class A, int count, int n> struct TileAndSums {
  OfTile<A, count, n> tile;
  Sums<n> sums;
};

// Sums of the differences from the first row, and of their squares.
template <class T, int n>
__device__ __forceinline__ void sum_moments_of_block(const T* x, const Cut& cut, Place me,
                                                     TileAndSums<compute_t<T>, 1, n>& shared) {
  using A = compute_t<T>;
  auto& [top, sums] = shared;
  top.fill(cut, me, [&](int64_t channel, A* v) { v[0] = widen(x[channel]); });
  sums.clear(cut);
  if (me.channel < cut.channels) {
    for_each_stretch(me, [&](int rows) {
      A about[n]{}, sum[n]{}, squares[n]{};
      bool is_first = true;
      Vector<T, n> v[kUnderWay];
      for_each_row<kUnderWay>(
          me, rows, [&](int e, int64_t at) { v[e] = load<n>(x + at); },
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
        const double apart = static_cast<double>(about[k]) - static_cast<double>(top.of(0, k, me.lane));
        const double few = static_cast<double>(sum[k]), all = rows * apart;
        sums.add(cut, k, few + all, static_cast<double>(squares[k]) + apart * (2 * few + all));
      }
    });
  }
}
template <class T, int n>
__global__ void __launch_bounds__(kThreads, 4) moments(const T* x, Cut cut, double* pieces) {
  const Place me = place_of<n>(cut);
  auto& shared = shared_memory<TileAndSums<compute_t<T>, 1, n>>();
  sum_moments_of_block(x, cut, me, shared);
  write_sums(cut, me, shared.sums, pieces);
}

// Which gradients are summed.
enum class Given {
  kAsIs,
  kOfRectified,  // of what became of the normalized x: times the slope where that is not positive
  kOfSum,        // where y is positive; they are written
  kScaled,       // and written times the scale
};

constexpr int numbers_of(Given given) {
  return given == Given::kOfRectified ? 3 : given == Given::kScaled ? 2 : 1;
}
// Rows of gradients that a thread loads at once: one where registers hold no more.
template <Given given, class A>
constexpr int kRowsOfGradients =
    given == Given::kScaled || (given != Given::kAsIs && sizeof(A) > 4) ? 1 : kUnderWay / 2;
// Sums of the gradients g, and of g * (x - mean). `written` may be dy.
template <Given given, int each, class T, int n, class Written>
__device__ __forceinline__ void sum_gradients_of_block(
    const BatchNorm<T>& s, const Cut& cut, Place me, const T* dy, const T* y, Written* written,
    compute_t<T> negative_slope, TileAndSums<compute_t<T>, numbers_of(given), n>& shared) {
  using A = compute_t<T>;
  constexpr bool kOfSum = given == Given::kOfSum, kScaled = given == Given::kScaled;
  constexpr bool kOfRectified = given == Given::kOfRectified;
  constexpr int kNumbers = numbers_of(given);
  shared.tile.fill(cut, me, [&](int64_t channel, A* v) {
    v[0] = s.mean[channel];
    if constexpr (kNumbers > 1) v[1] = scale_of(s, channel, s.var[channel]);
    if constexpr (kNumbers > 2) v[2] = shift_of(s, channel);
  });
  shared.sums.clear(cut);
  if (me.channel < cut.channels) {
    A numbers[kNumbers][n];
    shared.tile.take(me, numbers);
    const A* const mean = numbers[0];
    for_each_stretch(me, [&](int rows) {
      A sum[n]{}, centered[n]{};
      Vector<T, n> v[each], g[each], of[each];
      for_each_row<each>(
          me, rows,
          [&](int e, int64_t at) {
            v[e] = load<n>(s.x + at), g[e] = load<n>(dy + at);
            if constexpr (kOfSum) of[e] = load<n>(y + at);
          },
          [&](int e, int64_t at) {
            Vector<Written, n> out;
#pragma unroll
            for (int k = 0; k < n; ++k) {
              const A element = widen(v[e].v[k]);
              A slope = widen(g[e].v[k]);
              if constexpr (kOfRectified)
                slope = formulas::leaky_gradient(
                    slope, formulas::normalized(element, mean[k], numbers[1][k], numbers[2][k]),
                    negative_slope);
              if constexpr (kOfSum) slope = formulas::rectified_gradient(slope, widen(of[e].v[k]));
              sum[k] += slope;
              centered[k] = m::fma(slope, element - mean[k], centered[k]);
              out.v[k] = convert<Written>(kScaled ? slope * numbers[kNumbers - 1][k] : slope);
            }
            if constexpr (kOfSum || kScaled) store(written + at, out);
          });
#pragma unroll
      for (int k = 0; k < n; ++k)
        shared.sums.add(cut, k, static_cast<double>(sum[k]), static_cast<double>(centered[k]));
    });
  }
}
template <Given given, class T, int n, class Written>
__global__ void __launch_bounds__(kThreads, 4)
    gradient_sums(BatchNorm<T> s, Cut cut, const T* dy, const T* y, Written* written, double* pieces,
                  compute_t<T> negative_slope) {
  const Place me = place_of<n>(cut);
  auto& shared = shared_memory<TileAndSums<compute_t<T>, numbers_of(given), n>>();
  constexpr int kEach = kRowsOfGradients<given, compute_t<T>>;
  sum_gradients_of_block<given, kEach>(s, cut, me, dy, y, written, negative_slope, shared);
  write_sums(cut, me, shared.sums, pieces);
}

template <class A, int count, int n> struct ForChannels {
  double parts[kThreads];
  OfTile<A, count, n> tile;
};

// Moves one running statistic, of type T or A, toward the batch's.
template <class T>
__device__ __forceinline__ void move(void* running, bool is_wide, double batch, double momentum,
                                     int64_t channel) {
  using A = compute_t<T>;
  const auto moved = [&](A v) {
    return static_cast<A>(formulas::moved(static_cast<double>(v), batch, momentum));
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

// Writes mean and var of a channel, which follow from its moments.
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

// `tile` has mean, scale and shift.
template <class T, int n, bool adds>
__device__ __forceinline__ void normalize_block(const BatchNorm<T>& s, const Cut& cut, Place me, T* y,
                                                const T* residual, compute_t<T> negative_slope,
                                                const OfTile<compute_t<T>, 3, n>& tile) {
  using A = compute_t<T>;
  if (me.channel >= cut.channels) return;
  A numbers[3][n];
  tile.take(me, numbers);
  const A *mean = numbers[0], *scale = numbers[1], *shift = numbers[2];
  constexpr int kEach = kUnderWay / (n == 8 ? 2 : 1) / (adds ? 2 : 1);
  Vector<T, n> v[kEach], add[kEach];
  for_each_row<kEach>(
      me, me.rows,
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
          out.v[k] = convert<T>(formulas::leaky(value, negative_slope));
        }
        store(y + at, out);
      });
}

// `pieces` are the moments, of `count` pieces, from which mean and var follow. Null: they are given.
template <class T, int n, bool adds>
__global__ void __launch_bounds__(kThreads, 4)
    normalize(BatchNorm<T> s, Cut cut, T* y, const T* residual, compute_t<T> negative_slope,
              RunningStatistics running, const double* pieces, int64_t count) {
  using A = compute_t<T>;
  const Place me = place_of<n>(cut);
  auto& shared = shared_memory<ForChannels<A, 3, n>>();
  Pair sums{};
  if (pieces) sums = sums_of<kWidth<n>>(pieces, count, me.tile, cut.channels, shared.parts);
  shared.tile.fill(cut, me, [&](int64_t channel, A* v) {
    v[0] = pieces ? mean_of(s, channel, sums) : s.mean[channel];
    const A var = pieces ? var_of(s, sums) : s.var[channel];
    if (pieces && me.piece == 0) write_statistics(s, running, channel, v[0], var);
    v[1] = scale_of(s, channel, var);
    v[2] = shift_of(s, channel);
  });
  normalize_block<T, n, adds>(s, cut, me, y, residual, negative_slope, shared.tile);
}

template <class A, int summed, int used, int n> struct AtOnce {
  TileAndSums<A, summed, n> summing;
  SumsOfTile<n> sums;
  OfTile<A, used, n> tile;
};

// Of one piece: moments() and normalize().
template <class T, int n, bool adds>
__global__ void __launch_bounds__(kThreads, 4)
    normalize_at_once(BatchNorm<T> s, Cut cut, T* y, const T* residual, compute_t<T> negative_slope,
                      RunningStatistics running) {
  using A = compute_t<T>;
  const Place me = place_of<n>(cut);
  auto& shared = shared_memory<AtOnce<A, 1, 3, n>>();
  sum_moments_of_block(s.x, cut, me, shared.summing);
  shared.sums.fill(cut, me, shared.summing.sums);
  shared.tile.fill(cut, me, [&](int64_t channel, A* v) {
    const Pair sums = shared.sums.of(thread_index());
    v[0] = mean_of(s, channel, sums);
    const A var = var_of(s, sums);
    write_statistics(s, running, channel, v[0], var);
    v[1] = scale_of(s, channel, var);
    v[2] = shift_of(s, channel);
  });
  normalize_block<T, n, adds>(s, cut, me, y, residual, negative_slope, shared.tile);
}

// Takes the numbers that differentiate_block() needs of a channel. If this block is to, it writes the
// gradients of the channel's weight and bias.
template <bool rectified, class T>
__device__ __forceinline__ void take_slopes(const BatchNorm<T>& s, int64_t channel, const Pair& sums,
                                            bool writes, compute_t<T>* dweight, compute_t<T>* dbias,
                                            compute_t<T>* v) {
  using A = compute_t<T>;
  const A var = s.var[channel];
  const auto slopes = formulas::batch_norm_slopes(sums.first, sums.second, static_cast<double>(s.rows),
                                                  static_cast<double>(var), s.eps);
  v[0] = s.mean[channel];
  v[1] = scale_of(s, channel, var);
  v[2] = static_cast<A>(slopes.offset);
  v[3] = static_cast<A>(slopes.slope);
  if constexpr (rectified) v[4] = shift_of(s, channel);
  if (writes) dweight[channel] = static_cast<A>(slopes.dweight), dbias[channel] = static_cast<A>(sums.first);
}

template <bool rectified> constexpr int kSlopes = rectified ? 5 : 4;
template <int each, class T, int n, bool rectified>
__device__ __forceinline__ void differentiate_block(const BatchNorm<T>& s, const Cut& cut, Place me, T* dx,
                                                    const T* dy, compute_t<T> negative_slope,
                                                    const OfTile<compute_t<T>, kSlopes<rectified>, n>& tile) {
  using A = compute_t<T>;
  if (me.channel >= cut.channels) return;
  A numbers[kSlopes<rectified>][n];
  tile.take(me, numbers);
  const A *mean = numbers[0], *scale = numbers[1], *offset = numbers[2], *slope = numbers[3];
  Vector<T, n> v[each], g[each];
  for_each_row<each>(
      me, me.rows, [&](int e, int64_t at) { v[e] = load<n>(s.x + at), g[e] = load<n>(dy + at); },
      [&](int e, int64_t at) {
        Vector<T, n> out;
#pragma unroll
        for (int k = 0; k < n; ++k) {
          const A element = widen(v[e].v[k]);
          A given = widen(g[e].v[k]);
          if constexpr (rectified)
            given = formulas::leaky_gradient(
                given, formulas::normalized(element, mean[k], scale[k], numbers[4][k]), negative_slope);
          out.v[k] =
              convert<T>(formulas::batch_norm_dx(given, element, mean[k], scale[k], offset[k], slope[k]));
        }
        store(dx + at, out);
      });
}

// From the sums of gradients of `count` pieces.
template <class T, int n, bool rectified>
__global__ void __launch_bounds__(kThreads, 4)
    normalize_backward(BatchNorm<T> s, Cut cut, T* dx, compute_t<T>* dweight, compute_t<T>* dbias,
                       const T* dy, const double* pieces, int64_t count, compute_t<T> negative_slope) {
  using A = compute_t<T>;
  const Place me = place_of<n>(cut);
  auto& shared = shared_memory<ForChannels<A, kSlopes<rectified>, n>>();
  const Pair sums = sums_of<kWidth<n>>(pieces, count, me.tile, cut.channels, shared.parts);
  shared.tile.fill(cut, me, [&](int64_t channel, A* v) {
    take_slopes<rectified>(s, channel, sums, me.piece == 0, dweight, dbias, v);
  });
  differentiate_block<kUnderWay / 2, T, n, rectified>(s, cut, me, dx, dy, negative_slope, shared.tile);
}

// Of one piece: gradient_sums() and normalize_backward().
template <class T, int n, bool rectified>
__global__ void __launch_bounds__(kThreads, 4)
    backward_at_once(BatchNorm<T> s, Cut cut, T* dx, compute_t<T>* dweight, compute_t<T>* dbias, const T* dy,
                     compute_t<T> negative_slope) {
  using A = compute_t<T>;
  constexpr Given kGiven = rectified ? Given::kOfRectified : Given::kAsIs;
  const Place me = place_of<n>(cut);
  auto& shared = shared_memory<AtOnce<A, numbers_of(kGiven), kSlopes<rectified>, n>>();
  const T* const none = nullptr;
  constexpr int kEach = kRowsOfGradients<kGiven, A>;
  sum_gradients_of_block<kGiven, kEach, T, n, T>(s, cut, me, dy, none, nullptr, negative_slope,
                                                 shared.summing);
  shared.sums.fill(cut, me, shared.summing.sums);
  shared.tile.fill(cut, me, [&](int64_t channel, A* v) {
    take_slopes<rectified>(s, channel, shared.sums.of(thread_index()), true, dweight, dbias, v);
  });
  differentiate_block<kEach, T, n, rectified>(s, cut, me, dx, dy, negative_slope, shared.tile);
}

template <class T, int n>
__global__ void __launch_bounds__(kThreads, 4)
    moments_backward(T* dx, const compute_t<T>* add, const T* x, Cut cut, const compute_t<T>* mean,
                     const compute_t<T>* offset, const compute_t<T>* slope) {
  using A = compute_t<T>;
  Place me = place_of<n>(cut);
  auto& tile = shared_memory<OfTile<A, 3, n>>();
  tile.fill(cut, me, [&](int64_t channel, A* v) {
    v[0] = mean[channel], v[1] = offset[channel], v[2] = slope[channel];
  });
  if (me.channel >= cut.channels) return;
  A numbers[3][n];
  tile.take(me, numbers);
  constexpr int kEach = kUnderWay / 2;
  Vector<T, n> v[kEach];
  Vector<A, n> base[kEach];
  for_each_row<kEach>(
      me, me.rows,
      [&](int e, int64_t at) {
        v[e] = load<n>(x + at);
        if (add) base[e] = load<n>(add + at);
      },
      [&](int e, int64_t at) {
        Vector<T, n> out;
#pragma unroll
        for (int k = 0; k < n; ++k) {
          const A line =
              formulas::line_about_mean(A(widen(v[e].v[k])), numbers[0][k], numbers[1][k], numbers[2][k]);
          out.v[k] = convert<T>(add ? base[e].v[k] + line : line);
        }
        store(dx + at, out);
      });
}

// The sums of all pieces, as they are, or as mean and m2 if the moments of x are summed.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    finish_sums(Out* first, Out* second, const T* x, int64_t rows, int64_t channels, const double* pieces,
                int64_t count) {
  auto& parts = shared_memory<double[kThreads]>();
  const int64_t tile = block_index() * kSingles;
  const Pair sums = sums_of<kSingles>(pieces, count, tile, channels, parts);
  const int64_t channel = tile + thread_index();
  if (thread_index() >= kSingles || channel >= channels) return;
  if (x) {
    const auto n = static_cast<double>(rows);
    first[channel] = static_cast<Out>(static_cast<double>(widen(x[channel])) + sums.first / n);
    second[channel] = static_cast<Out>(formulas::squares_about_mean(sums.first, sums.second, n));
  } else {
    first[channel] = static_cast<Out>(sums.first), second[channel] = static_cast<Out>(sums.second);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    update_running(RunningStatistics running, const compute_t<T>* mean, const compute_t<T>* var,
                   int64_t channels) {
  const int64_t channel = block_index() * kThreads + thread_index();
  if (channel < channels) move_running<T>(running, channel, mean[channel], var[channel]);
}

// Pieces so few that their sums, which as many blocks read, are 1/25 of three passes over the elements at
// most; and not fewer than kUnderWay rows of a thread.
int64_t pieces_of(int64_t rows, int64_t element_bytes, int64_t tiles, int64_t groups) {
  constexpr double kSumBytes = 2 * sizeof(double), kPasses = 3, kShare = 1. / 25;
  const auto cheap = static_cast<int64_t>(
      std::sqrt(static_cast<double>(rows * element_bytes) * (kShare * kPasses / kSumBytes)));
  return std::max<int64_t>(
      1, std::min({cheap, blocks_for(rows, kUnderWay * groups), blocks_for(kWanted, tiles)}));
}

Cut cut_of(int64_t rows, int64_t channels, int vector, int64_t element_bytes) {
  Cut cut{rows, channels, 1, rows, 1, 1, kThreads};
  while (cut.lanes < (vector == 1 ? kSingles : kVectors) && cut.lanes * vector < channels) cut.lanes *= 2;
  cut.tiles = blocks_for(channels, int64_t(cut.lanes) * vector);
  cut.groups = kThreads / cut.lanes;
  const int64_t length = blocks_for(rows, pieces_of(rows, element_bytes, cut.tiles, cut.groups));
  cut.length = blocks_for(length, cut.groups) * cut.groups;  // so that warps begin where sectors do
  cut.pieces = blocks_for(rows, cut.length);
  return cut;
}
template <class Shared> Grid grid_of(const Cut& cut) {
  return {cut.tiles * cut.pieces, kThreads, static_cast<int64_t>(sizeof(Shared))};
}

// Channels of a thread: 16 bytes of elements, but of sums, and of what else takes registers, 4 at most.
template <class T> constexpr int kVector = 16 / static_cast<int>(sizeof(T));
template <class T> constexpr int kFew = std::min(4, kVector<T>);

// Calls f<n>(cut) with n channels of a thread: `most`, or 1 where they do not make whole, aligned vectors.
// Arrays are of elements T, or of what these are computed in.
template <int most, class T, class F, class... P>
void with_cut(int64_t rows, int64_t channels, F&& f, const T* x, const P*... more) {
  const auto is_aligned = [](const void* p, size_t size) {
    return reinterpret_cast<uintptr_t>(p) % (most * size) == 0;
  };
  const bool fits = channels % most == 0 && is_aligned(x, sizeof(T)) && (is_aligned(more, sizeof(P)) && ...);
  if (fits)
    f.template operator()<most>(cut_of(rows, channels, most, sizeof(T)));
  else
    f.template operator()<1>(cut_of(rows, channels, 1, sizeof(T)));
}

// These return the number of pieces.
template <class T>
int64_t sum_moments(const char* op, const T* x, int64_t rows, int64_t channels, double* pieces,
                    cudaStream_t stream) {
  int64_t count = 0;
  with_cut<kFew<T>>(
      rows, channels,
      [&]<int n>(const Cut& cut) {
        count = cut.pieces;
        launch(op, moments<T, n>, grid_of<TileAndSums<compute_t<T>, 1, n>>(cut), stream, x, cut, pieces);
      },
      x);
  return count;
}
template <Given given, class T, class Written>
int64_t sum_gradients(const char* op, const BatchNorm<T>& s, const T* dy, const T* y, Written* written,
                      double* pieces, cudaStream_t stream, double negative_slope = 0) {
  int64_t count = 0;
  with_cut<kFew<T>>(
      s.rows, s.channels,
      [&]<int n>(const Cut& cut) {
        count = cut.pieces;
        launch(op, gradient_sums<given, T, n, Written>,
               grid_of<TileAndSums<compute_t<T>, numbers_of(given), n>>(cut), stream, s, cut, dy, y, written,
               pieces, static_cast<compute_t<T>>(negative_slope));
      },
      s.x, dy, y, written);
  return count;
}

template <class T>
void run_normalize(const char* op, const BatchNorm<T>& s, T* y, const T* residual, double negative_slope,
                   const RunningStatistics& running, const double* pieces, int64_t count,
                   cudaStream_t stream) {
  with_cut<kVector<T>>(
      s.rows, s.channels,
      [&]<int n>(const Cut& cut) {
        launch(op, residual ? normalize<T, n, true> : normalize<T, n, false>,
               grid_of<ForChannels<compute_t<T>, 3, n>>(cut), stream, s, cut, y, residual,
               static_cast<compute_t<T>>(negative_slope), running, pieces, count);
      },
      s.x, y, residual);
}
template <bool rectified, class T>
void run_backward(const char* op, const BatchNorm<T>& s, T* dx, compute_t<T>* dweight, compute_t<T>* dbias,
                  const T* dy, const double* pieces, int64_t count, cudaStream_t stream,
                  double negative_slope = 1) {
  with_cut<kFew<T>>(
      s.rows, s.channels,
      [&]<int n>(const Cut& cut) {
        launch(op, normalize_backward<T, n, rectified>,
               grid_of<ForChannels<compute_t<T>, kSlopes<rectified>, n>>(cut), stream, s, cut, dx, dweight,
               dbias, dy, pieces, count, static_cast<compute_t<T>>(negative_slope));
      },
      s.x, dx, dy);
}
// These run what there is one piece of, and return whether there is.
template <class T>
bool normalized_at_once(const char* op, const BatchNorm<T>& s, T* y, const T* residual, double negative_slope,
                        const RunningStatistics& running, cudaStream_t stream) {
  bool is_one = false;
  with_cut<kFew<T>>(
      s.rows, s.channels,
      [&]<int n>(const Cut& cut) {
        is_one = cut.pieces == 1;
        if (is_one)
          launch(op, residual ? normalize_at_once<T, n, true> : normalize_at_once<T, n, false>,
                 grid_of<AtOnce<compute_t<T>, 1, 3, n>>(cut), stream, s, cut, y, residual,
                 static_cast<compute_t<T>>(negative_slope), running);
      },
      s.x, y, residual);
  return is_one;
}
template <bool rectified, class T>
bool differentiated_at_once(const char* op, const BatchNorm<T>& s, T* dx, compute_t<T>* dweight,
                            compute_t<T>* dbias, const T* dy, double negative_slope, cudaStream_t stream) {
  constexpr int kMost = rectified ? kFew<T> / 2 : kFew<T>;  // registers hold no more
  bool is_one = false;
  with_cut<kMost>(
      s.rows, s.channels,
      [&]<int n>(const Cut& cut) {
        is_one = cut.pieces == 1;
        constexpr int kNumbers = numbers_of(rectified ? Given::kOfRectified : Given::kAsIs);
        if (is_one)
          launch(op, backward_at_once<T, n, rectified>,
                 grid_of<AtOnce<compute_t<T>, kNumbers, kSlopes<rectified>, n>>(cut), stream, s, cut, dx,
                 dweight, dbias, dy, static_cast<compute_t<T>>(negative_slope));
      },
      s.x, dx, dy);
  return is_one;
}
template <class T, class Out>
void run_finish(const char* op, Out* first, Out* second, const T* x, int64_t rows, int64_t channels,
                const double* pieces, int64_t count, cudaStream_t stream) {
  launch(op, finish_sums<T, Out>, {blocks_for(channels, kSingles), kThreads, sizeof(double[kThreads])},
         stream, first, second, x, rows, channels, pieces, count);
}

}  // namespace

int64_t batch_norm_workspace(int64_t rows, int64_t channels) {
  // More for larger elements, and for fewer channels of a thread.
  const int64_t most = std::max(cut_of(rows, channels, 1, 8).pieces, cut_of(rows, channels, 2, 8).pieces);
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
void batch_norm_backward(const char* op, const BatchNorm<T>& s, T* dx, compute_t<T>* dweight,
                         compute_t<T>* dbias, const T* dy, double negative_slope, void* workspace,
                         cudaStream_t stream) {
  auto* const pieces = static_cast<double*>(workspace);
  T* const none = nullptr;
  if (negative_slope != 1
          ? differentiated_at_once<true>(op, s, dx, dweight, dbias, dy, negative_slope, stream)
          : differentiated_at_once<false>(op, s, dx, dweight, dbias, dy, 1, stream))
    return;
  if (negative_slope != 1) {
    const int64_t count =
        sum_gradients<Given::kOfRectified>(op, s, dy, none, none, pieces, stream, negative_slope);
    return run_backward<true>(op, s, dx, dweight, dbias, dy, pieces, count, stream, negative_slope);
  }
  const int64_t count = sum_gradients<Given::kAsIs>(op, s, dy, none, none, pieces, stream);
  run_backward<false>(op, s, dx, dweight, dbias, dy, pieces, count, stream);
}
template <class T>
void batch_norm_add_relu_backward(const char* op, const BatchNorm<T>& s, T* dx, T* dresidual,
                                  compute_t<T>* dweight, compute_t<T>* dbias, const T* dy, const T* y,
                                  void* workspace, cudaStream_t stream) {
  auto* const pieces = static_cast<double*>(workspace);
  const int64_t count = sum_gradients<Given::kOfSum>(op, s, dy, y, dresidual, pieces, stream);
  run_backward<false, T>(op, s, dx, dweight, dbias, dresidual, pieces, count, stream);
}
template <class T>
void batch_norm_apply_backward(const char* op, const BatchNorm<T>& s, compute_t<T>* dx, compute_t<T>* sum,
                               compute_t<T>* centered_sum, const T* dy, void* workspace,
                               cudaStream_t stream) {
  auto* const pieces = static_cast<double*>(workspace);
  const T* const none = nullptr;
  const int64_t count = sum_gradients<Given::kScaled>(op, s, dy, none, dx, pieces, stream);
  run_finish(op, sum, centered_sum, none, s.rows, s.channels, pieces, count, stream);
}
template <class T>
void batch_statistics(const char* op, double* mean, double* m2, const T* x, int64_t rows, int64_t channels,
                      void* workspace, cudaStream_t stream) {
  auto* const pieces = static_cast<double*>(workspace);
  const int64_t count = sum_moments(op, x, rows, channels, pieces, stream);
  run_finish(op, mean, m2, x, rows, channels, pieces, count, stream);
}
template <class T>
void batch_statistics_backward(const char* op, T* dx, const compute_t<T>* add, const T* x,
                               const compute_t<T>* mean, const compute_t<T>* offset,
                               const compute_t<T>* slope, int64_t rows, int64_t channels,
                               cudaStream_t stream) {
  with_cut<kFew<T>>(
      rows, channels,
      [&]<int n>(const Cut& cut) {
        launch(op, moments_backward<T, n>, grid_of<OfTile<compute_t<T>, 3, n>>(cut), stream, dx, add, x, cut,
               mean, offset, slope);
      },
      x, dx, add);
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
  template void batch_norm_backward(const char*, const BatchNorm<T>&, T*, compute_t<T>*, compute_t<T>*,      \
                                    const T*, double, void*, cudaStream_t);                                  \
  template void batch_norm_add_relu_backward(const char*, const BatchNorm<T>&, T*, T*, compute_t<T>*,        \
                                             compute_t<T>*, const T*, const T*, void*, cudaStream_t);        \
  template void batch_norm_apply_backward(const char*, const BatchNorm<T>&, compute_t<T>*, compute_t<T>*,    \
                                          compute_t<T>*, const T*, void*, cudaStream_t);                     \
  template void batch_statistics(const char*, double*, double*, const T*, int64_t, int64_t, void*,           \
                                 cudaStream_t);                                                              \
  template void batch_statistics_backward(const char*, T*, const compute_t<T>*, const T*,                    \
                                          const compute_t<T>*, const compute_t<T>*, const compute_t<T>*,     \
                                          int64_t, int64_t, cudaStream_t);                                   \
  template void batch_norm_update<T>(const char*, const RunningStatistics&, const compute_t<T>*,             \
                                     const compute_t<T>*, int64_t, cudaStream_t);
GRADUS_INSTANTIATE(double)
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(f16)
GRADUS_INSTANTIATE(bf16)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
