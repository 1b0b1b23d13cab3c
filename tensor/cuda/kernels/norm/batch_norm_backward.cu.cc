// CUDA kernels of the gradients of batch norm on row-major [rows, channels] (batch_norm.h): of batch norm with an
// optional leaky ReLU, of batch norm + residual + ReLU, of the normalization by given statistics, and of the
// statistics. Two launches: per channel, the f64 sums of g and of g * (x - mean) over each piece of the rows, then
// dx from their totals. batch_norm_backward() takes one launch if the rows are one piece, and
// batch_statistics_backward() always does. dx may be dy (or y, or an `add` of dx's type): a thread reads an
// element before it writes that element, and no other thread reads it afterwards.
//
// Words of channel_sums.h: a tile is the channels of a block and a piece its rows; a thread has n neighboring
// channels (a vector, or 1) and every groups-th row of the piece; a stretch is 16 of the thread's rows,
// summed in compute_t<T> before they are added to the f64 sums. SumShared, ApplyShared and FusedShared are
// the kernels' shared memory.
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"
#include "gradus/tensor/cuda/kernels/norm/channel_sums.h"
#include "gradus/tensor/ops/formulas/batch_norm.h"

namespace gradus::cuda {
namespace {

using namespace channel_sums_detail;  // NOLINT

// How the summed gradient g follows from dy.
enum class Given {
  kAsIs,         // g = dy
  kOfRectified,  // y = leaky_relu(batch_norm(x)): g = dy, times negative_slope where batch_norm(x) <= 0
  kOfSum,        // y = relu(batch_norm(x) + residual): g = dy where y > 0, else 0; written = g = dresidual
  kScaled,       // g = dy; written = g * scale, which is dx if mean and var are constants
};

// Returns how many numbers per channel the sums need: mean, then scale, then shift (bias).
constexpr int numbers_of(Given given) {
  return given == Given::kOfRectified ? 3 : given == Given::kScaled ? 2 : 1;
}
// Rows that a thread loads before it uses the first: 1 if registers do not suffice for more.
template <Given given, class A>
constexpr int kRowsOfGradients =
    given == Given::kScaled || (given != Given::kAsIs && sizeof(A) > 4) ? 1 : kRowsInFlight / 2;
// Adds g and g * (x - mean) over the rows of the block to shared.sums, per thread and channel, and writes
// `written` for kOfSum and kScaled (else null). y is read only for kOfSum. `written` may be dy. All threads call.
template <Given given, int each, class T, int n, class Written>
__device__ __forceinline__ void sum_gradients_of_block(
    const BatchNorm<T>& s, const GridPartition& grid, ThreadIndex thread, const T* dy, const T* y,
    Written* written, compute_t<T> negative_slope, SumShared<compute_t<T>, numbers_of(given), n>& shared) {
  using A = compute_t<T>;
  constexpr bool kOfSum = given == Given::kOfSum, kScaled = given == Given::kScaled;
  constexpr bool kOfRectified = given == Given::kOfRectified;
  constexpr int kNumbers = numbers_of(given);
  shared.tile.fill(grid, thread, [&](int64_t channel, A* v) {
    v[0] = s.mean[channel];
    if constexpr (kNumbers > 1) v[1] = scale_of(s, channel, s.var[channel]);
    if constexpr (kNumbers > 2) v[2] = shift_of(s, channel);
  });
  shared.sums.clear(grid);
  if (thread.channel < grid.channels) {
    A numbers[kNumbers][n];
    shared.tile.take(thread, numbers);
    const A* const mean = numbers[0];
    for_each_stretch(thread, [&](int rows) {
      A sum[n]{}, centered[n]{};
      Vector<T, n> v[each], g[each], outputs[each];
      for_each_row<each>(
          thread, rows,
          [&](int e, int64_t at) {
            v[e] = load<n>(s.x + at), g[e] = load<n>(dy + at);
            if constexpr (kOfSum) outputs[e] = load<n>(y + at);
          },
          [&](int e, int64_t at) {
            Vector<Written, n> out;
#pragma unroll
            for (int k = 0; k < n; ++k) {
              const A element = widen(v[e].v[k]);
              A gradient = widen(g[e].v[k]);
              if constexpr (kOfRectified)
                gradient = formulas::leaky_relu_gradient(
                    gradient, formulas::normalized(element, mean[k], numbers[1][k], numbers[2][k]),
                    negative_slope);
              if constexpr (kOfSum) gradient = formulas::relu_gradient(gradient, widen(outputs[e].v[k]));
              sum[k] += gradient;
              centered[k] = m::fma(gradient, element - mean[k], centered[k]);
              out.v[k] = convert<Written>(kScaled ? gradient * numbers[kNumbers - 1][k] : gradient);
            }
            if constexpr (kOfSum || kScaled) store(written + at, out);
          });
#pragma unroll
      for (int k = 0; k < n; ++k)
        shared.sums.add(grid, k, static_cast<double>(sum[k]), static_cast<double>(centered[k]));
    });
  }
}

// pieces[p, 0, c] = sum_r g[r, c] and pieces[p, 1, c] = sum_r g[r, c] * (x[r, c] - mean[c]), over rows r of
// piece p of [rows, channels]; `given` defines g. A block has one piece and a tile of channels, a thread n
// channels of every grid.groups-th row.
template <Given given, class T, int n, class Written>
__global__ void __launch_bounds__(kThreads, 4)
    gradient_sums(BatchNorm<T> s, GridPartition grid, const T* dy, const T* y, Written* written,
                  double* pieces, compute_t<T> negative_slope) {
  const ThreadIndex thread = thread_index<n>(grid);
  auto& shared = shared_memory<SumShared<compute_t<T>, numbers_of(given), n>>();
  constexpr int kEach = kRowsOfGradients<given, compute_t<T>>;
  sum_gradients_of_block<given, kEach>(s, grid, thread, dy, y, written, negative_slope, shared);
  write_sums(grid, thread, shared.sums, pieces);
}

// v = the numbers of a channel that differentiate_block() needs: mean, scale, offset, slope and, if
// rectified, shift. sums = sum(g) and sum(g * (x - mean)) of the channel. If `writes`, sets dweight, dbias.
template <bool rectified, class T>
__device__ __forceinline__ void take_slopes(const BatchNorm<T>& s, int64_t channel, const Pair& sums,
                                            bool writes, compute_t<T>* dweight, compute_t<T>* dbias,
                                            compute_t<T>* v) {
  using A = compute_t<T>;
  const A var = s.var[channel];
  const auto slopes = formulas::batch_norm_grad_coefficients(
      sums.first, sums.second, static_cast<double>(s.rows), static_cast<double>(var), s.eps);
  v[0] = s.mean[channel];
  v[1] = scale_of(s, channel, var);
  v[2] = static_cast<A>(slopes.offset);
  v[3] = static_cast<A>(slopes.slope);
  if constexpr (rectified) v[4] = shift_of(s, channel);
  if (writes) dweight[channel] = static_cast<A>(slopes.dweight), dbias[channel] = static_cast<A>(sums.first);
}

template <bool rectified> constexpr int kSlopes = rectified ? 5 : 4;  // numbers per channel of take_slopes()

// Writes dx, by the formula of normalize_backward(), for the rows and channels of the block. If rectified, g
// follows from dy as in Given::kOfRectified, else g = dy.
template <int each, class T, int n, bool rectified>
__device__ __forceinline__ void differentiate_block(
    const BatchNorm<T>& s, const GridPartition& grid, ThreadIndex thread, T* dx, const T* dy,
    compute_t<T> negative_slope, const TileValues<compute_t<T>, kSlopes<rectified>, n>& tile) {
  using A = compute_t<T>;
  if (thread.channel >= grid.channels) return;
  A numbers[kSlopes<rectified>][n];
  tile.take(thread, numbers);
  const A *mean = numbers[0], *scale = numbers[1], *offset = numbers[2], *slope = numbers[3];
  Vector<T, n> v[each], g[each];
  for_each_row<each>(
      thread, thread.rows, [&](int e, int64_t at) { v[e] = load<n>(s.x + at), g[e] = load<n>(dy + at); },
      [&](int e, int64_t at) {
        Vector<T, n> out;
#pragma unroll
        for (int k = 0; k < n; ++k) {
          const A element = widen(v[e].v[k]);
          A given = widen(g[e].v[k]);
          if constexpr (rectified)
            given = formulas::leaky_relu_gradient(
                given, formulas::normalized(element, mean[k], scale[k], numbers[4][k]), negative_slope);
          out.v[k] =
              convert<T>(formulas::batch_norm_dx(given, element, mean[k], scale[k], offset[k], slope[k]));
        }
        store(dx + at, out);
      });
}

// dx[r, c] = scale[c] * (g[r, c] - offset[c] - (x[r, c] - mean[c]) * slope[c]), where with sums over all n
// rows offset = sum(g) / n, slope = sum(g * (x - mean)) / (n * (var + eps)); dbias = sum(g), dweight = sum(g
// * (x - mean)) / sqrt(var + eps). `pieces` [count, 2, channels] are the sums from gradient_sums(). A block has
// one piece of rows and a tile of channels, a thread n channels of every grid.groups-th row. Blocks of piece 0
// write dweight and dbias.
template <class T, int n, bool rectified>
__global__ void __launch_bounds__(kThreads, 4)
    normalize_backward(BatchNorm<T> s, GridPartition grid, T* dx, compute_t<T>* dweight, compute_t<T>* dbias,
                       const T* dy, const double* pieces, int64_t count, compute_t<T> negative_slope) {
  using A = compute_t<T>;
  const ThreadIndex thread = thread_index<n>(grid);
  auto& shared = shared_memory<ApplyShared<A, kSlopes<rectified>, n>>();
  const Pair sums = sums_of<kWidth<n>>(pieces, count, thread.tile, grid.channels, shared.parts);
  shared.tile.fill(grid, thread, [&](int64_t channel, A* v) {
    take_slopes<rectified>(s, channel, sums, thread.piece == 0, dweight, dbias, v);
  });
  differentiate_block<kRowsInFlight / 2, T, n, rectified>(s, grid, thread, dx, dy, negative_slope,
                                                          shared.tile);
}

// gradient_sums() and normalize_backward() in one launch, for rows that are a single piece: a block has all rows
// of its tile of channels.
template <class T, int n, bool rectified>
__global__ void __launch_bounds__(kThreads, 4)
    backward_at_once(BatchNorm<T> s, GridPartition grid, T* dx, compute_t<T>* dweight, compute_t<T>* dbias,
                     const T* dy, compute_t<T> negative_slope) {
  using A = compute_t<T>;
  constexpr Given kGiven = rectified ? Given::kOfRectified : Given::kAsIs;
  const ThreadIndex thread = thread_index<n>(grid);
  auto& shared = shared_memory<FusedShared<A, numbers_of(kGiven), kSlopes<rectified>, n>>();
  const T* const none = nullptr;
  constexpr int kEach = kRowsOfGradients<kGiven, A>;
  sum_gradients_of_block<kGiven, kEach, T, n, T>(s, grid, thread, dy, none, nullptr, negative_slope,
                                                 shared.summing);
  shared.sums.fill(grid, thread, shared.summing.sums);
  shared.tile.fill(grid, thread, [&](int64_t channel, A* v) {
    take_slopes<rectified>(s, channel, shared.sums.of(threadIdx.x), true, dweight, dbias, v);
  });
  differentiate_block<kEach, T, n, rectified>(s, grid, thread, dx, dy, negative_slope, shared.tile);
}

// dx[r, c] = add[r, c] + offset[c] + (x[r, c] - mean[c]) * slope[c] for [rows, channels]; `add` may be null.
// Threads map to rows and channels as in normalize_backward().
template <class T, int n>
__global__ void __launch_bounds__(kThreads, 4)
    moments_backward(T* dx, const compute_t<T>* add, const T* x, GridPartition grid, const compute_t<T>* mean,
                     const compute_t<T>* offset, const compute_t<T>* slope) {
  using A = compute_t<T>;
  ThreadIndex thread = thread_index<n>(grid);
  auto& tile = shared_memory<TileValues<A, 3, n>>();
  tile.fill(grid, thread, [&](int64_t channel, A* v) {
    v[0] = mean[channel], v[1] = offset[channel], v[2] = slope[channel];
  });
  if (thread.channel >= grid.channels) return;
  A numbers[3][n];
  tile.take(thread, numbers);
  constexpr int kEach = kRowsInFlight / 2;
  Vector<T, n> v[kEach];
  Vector<A, n> base[kEach];
  for_each_row<kEach>(
      thread, thread.rows,
      [&](int e, int64_t at) {
        v[e] = load<n>(x + at);
        if (add) base[e] = load<n>(add + at);
      },
      [&](int e, int64_t at) {
        Vector<T, n> out;
#pragma unroll
        for (int k = 0; k < n; ++k) {
          const A line =
              formulas::affine_about_mean(A(widen(v[e].v[k])), numbers[0][k], numbers[1][k], numbers[2][k]);
          out.v[k] = convert<T>(add ? base[e].v[k] + line : line);
        }
        store(dx + at, out);
      });
}

// Launches gradient_sums(). Returns the number of pieces.
template <Given given, class T, class Written>
int64_t sum_gradients(const char* op, const BatchNorm<T>& s, const T* dy, const T* y, Written* written,
                      double* pieces, cudaStream_t stream, double negative_slope = 0) {
  int64_t count = 0;
  with_partition<kSummedChannels<T>>(
      s.rows, s.channels,
      [&]<int n>(const GridPartition& grid) {
        count = grid.pieces;
        launch(op, gradient_sums<given, T, n, Written>,
               grid_of<SumShared<compute_t<T>, numbers_of(given), n>>(grid), stream, s, grid, dy, y, written,
               pieces, static_cast<compute_t<T>>(negative_slope));
      },
      s.x, dy, y, written);
  return count;
}

// Launches normalize_backward() with the sums of `count` pieces.
template <bool rectified, class T>
void run_backward(const char* op, const BatchNorm<T>& s, T* dx, compute_t<T>* dweight, compute_t<T>* dbias,
                  const T* dy, const double* pieces, int64_t count, cudaStream_t stream,
                  double negative_slope = 1) {
  with_partition<kSummedChannels<T>>(
      s.rows, s.channels,
      [&]<int n>(const GridPartition& grid) {
        launch(op, normalize_backward<T, n, rectified>,
               grid_of<ApplyShared<compute_t<T>, kSlopes<rectified>, n>>(grid), stream, s, grid, dx, dweight,
               dbias, dy, pieces, count, static_cast<compute_t<T>>(negative_slope));
      },
      s.x, dx, dy);
}
// Launches backward_at_once() if the rows are a single piece. Returns whether they are.
template <bool rectified, class T>
bool differentiated_at_once(const char* op, const BatchNorm<T>& s, T* dx, compute_t<T>* dweight,
                            compute_t<T>* dbias, const T* dy, double negative_slope, cudaStream_t stream) {
  constexpr int kMaxPerThread =
      rectified ? kSummedChannels<T> / 2 : kSummedChannels<T>;  // registers do not suffice for more
  bool is_one = false;
  with_partition<kMaxPerThread>(
      s.rows, s.channels,
      [&]<int n>(const GridPartition& grid) {
        is_one = grid.pieces == 1;
        constexpr int kNumbers = numbers_of(rectified ? Given::kOfRectified : Given::kAsIs);
        if (is_one)
          launch(op, backward_at_once<T, n, rectified>,
                 grid_of<FusedShared<compute_t<T>, kNumbers, kSlopes<rectified>, n>>(grid), stream, s, grid,
                 dx, dweight, dbias, dy, static_cast<compute_t<T>>(negative_slope));
      },
      s.x, dx, dy);
  return is_one;
}

}  // namespace

// negative_slope 1 means no activation, 0 ReLU. `workspace` has batch_norm_workspace() bytes, here and below.
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
void batch_statistics_backward(const char* op, T* dx, const compute_t<T>* add, const T* x,
                               const compute_t<T>* mean, const compute_t<T>* offset,
                               const compute_t<T>* slope, int64_t rows, int64_t channels,
                               cudaStream_t stream) {
  with_partition<kSummedChannels<T>>(
      rows, channels,
      [&]<int n>(const GridPartition& grid) {
        launch(op, moments_backward<T, n>, grid_of<TileValues<compute_t<T>, 3, n>>(grid), stream, dx, add, x,
               grid, mean, offset, slope);
      },
      x, dx, add);
}

#define GRADUS_INSTANTIATE(T)                                                                             \
  template void batch_norm_backward(const char*, const BatchNorm<T>&, T*, compute_t<T>*, compute_t<T>*,   \
                                    const T*, double, void*, cudaStream_t);                               \
  template void batch_norm_add_relu_backward(const char*, const BatchNorm<T>&, T*, T*, compute_t<T>*,     \
                                             compute_t<T>*, const T*, const T*, void*, cudaStream_t);     \
  template void batch_norm_apply_backward(const char*, const BatchNorm<T>&, compute_t<T>*, compute_t<T>*, \
                                          compute_t<T>*, const T*, void*, cudaStream_t);                  \
  template void batch_statistics_backward(const char*, T*, const compute_t<T>*, const T*,                 \
                                          const compute_t<T>*, const compute_t<T>*, const compute_t<T>*,  \
                                          int64_t, int64_t, cudaStream_t);
GRADUS_INSTANTIATE(double)
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(f16)
GRADUS_INSTANTIATE(bf16)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
