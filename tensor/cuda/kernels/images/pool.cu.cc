// CUDA kernels of max and average pooling and their gradients, on channels-last tensors [images, d, h, w,
// channels]. A thread computes one position of the result, or in pool_relu_grad one window, for one channel
// or a vector of adjacent channels. Gradients are gathered: a thread adds what its input position gets from
// each window that contains it, in ascending order of the windows. So there are no atomics, and sums have the
// order of the CPU kernels. Index tensors contain numbers of cells: the row-major index [d, h, w] of a cell
// within its window.
#include "gradus/tensor/cuda/kernels/images/pool.h"

#include <algorithm>
#include <limits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/strided.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;

using WindowRange = PoolWindow<int32_t>;

// The work items of a launch: [images, d, h, w, vectors of channels], row-major. Neighboring threads have neighboring
// ones.
struct WorkItems {
  int64_t count, vectors;
  Divider d, h, w, by_vectors;  // by_vectors divides if count <= kMaxDividend
};
// The work item of a thread: an image, a position in its input or output, and the first channel.
struct ThreadIndex {
  int64_t image, channel;
  int32_t d, h, w;
};
// Returns work item number `item`. Only a launch of more than kMaxDividend items divides, in 64 bits.
template <int vector>
__device__ __forceinline__ ThreadIndex thread_index(int64_t item, const WorkItems& items) {
  if (items.count > kMaxDividend) [[unlikely]] {
    const int64_t place = item / items.vectors, row = place / items.w.divisor, slice = row / items.h.divisor;
    return {slice / items.d.divisor, item % items.vectors * vector,
            static_cast<int32_t>(slice % items.d.divisor), static_cast<int32_t>(row % items.h.divisor),
            static_cast<int32_t>(place % items.w.divisor)};
  }
  const auto i = static_cast<uint32_t>(item);
  const uint32_t place = items.by_vectors.quotient(i), row = items.w.quotient(place),
                 slice = items.h.quotient(row), image = items.d.quotient(slice);
  return {image, static_cast<int64_t>(i - place * items.by_vectors.divisor) * vector,
          static_cast<int32_t>(slice - image * items.d.divisor),
          static_cast<int32_t>(row - slice * items.h.divisor),
          static_cast<int32_t>(place - row * items.w.divisor)};
}
// Return the offset, in elements, of position (d, h, w) in the image and channel of s, of the input or the output.
__device__ __forceinline__ int64_t input_at(const Pooling& p, const ThreadIndex& s, int32_t d, int32_t h,
                                            int32_t w) {
  return (((s.image * p.d.in + d) * p.h.in + h) * p.w.in + w) * p.channels + s.channel;
}
__device__ __forceinline__ int64_t output_at(const Pooling& p, const ThreadIndex& s, int32_t d, int32_t h,
                                             int32_t w) {
  return (((s.image * p.d.out + d) * p.h.out + h) * p.w.out + w) * p.channels + s.channel;
}

// The cells of a window that are inside the input.
struct Window {
  WindowRange d, h, w;
};
// Returns the window of output position s.
__device__ __forceinline__ Window window_of(const Pooling& p, const ThreadIndex& s) {
  return {window_of(p.d, s.d), window_of(p.h, s.h), window_of(p.w, s.w)};
}
// Returns the number of cell [d, h, w] of a window.
__device__ __forceinline__ int32_t number_of(const Pooling& p, int32_t d, int32_t h, int32_t w) {
  return (d * p.h.kernel + h) * p.w.kernel + w;
}
__device__ __forceinline__ int64_t cells_of(const WindowRange& s) { return std::max(0, s.last - s.first); }

// Calls f(number of the cell, offset in the input) for the cells of a window inside the input, in row-major order.
template <class F>
__device__ __forceinline__ void for_each_cell(const Pooling& p, const ThreadIndex& s, const Window& window,
                                              F&& f) {
  for (int32_t d = window.d.first; d < window.d.last; ++d)
    for (int32_t h = window.h.first; h < window.h.last; ++h) {
      int64_t at = input_at(p, s, window.d.position_of(d), window.h.position_of(h),
                            window.w.position_of(window.w.first));
      for (int32_t w = window.w.first; w < window.w.last; ++w, at += window.w.step * p.channels)
        f(number_of(p, d, h, w), at);
    }
}
// Calls f(window, number of the cell at s, offset of the window in the output) for all windows that contain input
// position s, in ascending order.
template <class F>
__device__ __forceinline__ void for_each_window_over(const Pooling& p, const ThreadIndex& s, F&& f) {
  const auto ds = windows_over(p.d, s.d), hs = windows_over(p.h, s.h), ws = windows_over(p.w, s.w);
  for (int32_t d = ds.first; d < ds.last; ++d) {
    const WindowRange slices = window_of(p.d, d);
    const int32_t slice = cell_at(slices, s.d);
    if (slice < 0) continue;
    for (int32_t h = hs.first; h < hs.last; ++h) {
      const WindowRange rows = window_of(p.h, h);
      const int32_t row = cell_at(rows, s.h);
      if (row < 0) continue;
#pragma unroll 1
      for (int32_t w = ws.first; w < ws.last; ++w) {
        const WindowRange columns = window_of(p.w, w);
        const int32_t column = cell_at(columns, s.w);
        if (column < 0) continue;
        f(Window{slices, rows, columns}, number_of(p, slice, row, column), output_at(p, s, d, h, w));
      }
    }
  }
}

// y[o] = max over the cells of window o of x, index[o] = number of the first cell with the maximum. NaN counts
// as the maximum; of several NaNs the last one wins. A window without cells has y = -infinity and index 0. index
// may be null. A thread computes `vector` channels of one position of y.
template <class T, class I, int vector>
__global__ void __launch_bounds__(kThreads, 4)
    pool_largest(T* y, I* index, const T* x, Pooling p, WorkItems items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items.count) return;
  using C = compute_t<T>;
  const ThreadIndex s = thread_index<vector>(item, items);
  const Window window = window_of(p, s);
  const bool is_empty = cells_of(window.d) * cells_of(window.h) * cells_of(window.w) == 0;
  const auto first =
      static_cast<I>(is_empty ? 0 : number_of(p, window.d.first, window.h.first, window.w.first));
  Vector<C, vector> best;
  Vector<I, vector> winner;
#pragma unroll
  for (int k = 0; k < vector; ++k) best.v[k] = -std::numeric_limits<C>::infinity(), winner.v[k] = first;
  for_each_cell(p, s, window, [&](int32_t number, int64_t at) {
    const auto cell = load<vector>(x + at);
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      const C v = widen(cell.v[k]);
      const bool wins = v > best.v[k] || v != v;
      best.v[k] = wins ? v : best.v[k];
      winner.v[k] = wins ? static_cast<I>(number) : winner.v[k];
    }
  });
  Vector<T, vector> result;
#pragma unroll
  for (int k = 0; k < vector; ++k) result.v[k] = convert<T>(best.v[k]);
  const int64_t at = item * vector;
  store(y + at, result);
  if (index) store(index + at, winner);
}

// dx[i] = sum of dy[o] over the windows o that contain i and in which i has the number index[o]. A thread computes
// `vector` channels of one position of dx.
template <class T, class I, int vector>
__global__ void __launch_bounds__(kThreads, 4)
    pool_scatter(T* dx, const T* dy, const I* index, Pooling p, WorkItems items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items.count) return;
  using C = compute_t<T>;
  const ThreadIndex s = thread_index<vector>(item, items);
  Vector<C, vector> sum{};
  for_each_window_over(p, s, [&](const Window&, int32_t number, int64_t at) {
    const auto winner = load<vector>(index + at);
    const auto g = load<vector>(dy + at);
#pragma unroll
    for (int k = 0; k < vector; ++k) sum.v[k] += winner.v[k] == static_cast<I>(number) ? widen(g.v[k]) : C(0);
  });
  Vector<T, vector> result;
#pragma unroll
  for (int k = 0; k < vector; ++k) result.v[k] = convert<T>(sum.v[k]);
  store(dx + item * vector, result);
}

// For disjoint windows: returns the begin, on one axis, of the input positions assigned to a window. They end
// where those of the next window begin, so each input position is assigned to one window, also positions between
// windows. `window` may be a.out.
__device__ __forceinline__ int32_t part_begin(const PoolAxis<int32_t>& a, int32_t window) {
  return window == 0 ? 0 : window == a.out ? a.in : window * a.stride - a.padding;
}

// In place: x[i] = dy[o] if i is the first maximum of its window o and x[i] > 0, else 0. Windows are disjoint. A
// thread computes `vector` channels of one window: it reads the cells of the window, then writes the input
// positions assigned to the window (part_begin).
template <class T, int vector>
__global__ void __launch_bounds__(kThreads, 4) pool_relu_grad(T* x, const T* dy, Pooling p, WorkItems items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items.count) return;
  using C = compute_t<T>;
  const ThreadIndex s = thread_index<vector>(item, items);
  const Window window = window_of(p, s);
  Vector<C, vector> best{};
  Vector<int32_t, vector> winner;
#pragma unroll
  for (int k = 0; k < vector; ++k) winner.v[k] = -1;
  for_each_cell(p, s, window, [&](int32_t number, int64_t at) {
    const auto cell = load<vector>(x + at);
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      const C v = widen(cell.v[k]);
      if (v > best.v[k]) best.v[k] = v, winner.v[k] = number;
    }
  });
  const auto g = load<vector>(dy + item * vector);
  const int32_t d_end = part_begin(p.d, s.d + 1), h_end = part_begin(p.h, s.h + 1),
                w_end = part_begin(p.w, s.w + 1);
  for (int32_t d = part_begin(p.d, s.d); d < d_end; ++d)
    for (int32_t h = part_begin(p.h, s.h); h < h_end; ++h) {
      const int32_t w_begin = part_begin(p.w, s.w), slice = cell_at(window.d, d), row = cell_at(window.h, h);
      int64_t at = input_at(p, s, d, h, w_begin);
#pragma unroll 1
      for (int32_t w = w_begin; w < w_end; ++w, at += p.channels) {
        const int32_t column = cell_at(window.w, w);
        const int32_t number = slice < 0 || row < 0 || column < 0 ? -2 : number_of(p, slice, row, column);
        Vector<T, vector> result;
#pragma unroll
        for (int k = 0; k < vector; ++k) result.v[k] = winner.v[k] == number ? g.v[k] : convert<T>(C(0));
        store(x + at, result);
      }
    }
}

// Returns the row-major index in the image [d, h, w] of cell `number` of the window of output position s; -1 if in the
// padding.
__device__ __forceinline__ int64_t position_in_image(const Pooling& p, const ThreadIndex& s, int32_t number) {
  const Window window = window_of(p, s);
  const int32_t w = number % p.w.kernel, h = number / p.w.kernel % p.h.kernel,
                d = number / p.w.kernel / p.h.kernel;
  if (!window.d.contains(d) || !window.h.contains(h) || !window.w.contains(w)) return -1;
  return (int64_t{window.d.position_of(d)} * p.h.in + window.h.position_of(h)) * p.w.in +
         window.w.position_of(w);
}

// y[o] = x at cell index[o] of window o; 0 if the cell is in the padding. A thread computes one element of y.
template <class T, class I>
__global__ void __launch_bounds__(kThreads, 4)
    pool_gather(T* y, const T* x, const I* index, Pooling p, WorkItems items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items.count) return;
  const ThreadIndex s = thread_index<1>(item, items);
  const int64_t position = position_in_image(p, s, index[item]);
  y[item] = position < 0 ? T() : x[input_at(p, s, 0, 0, 0) + position * p.channels];
}

// positions[o] = row-major index in the image [d, h, w] of cell index[o] of window o; 0 if the cell is in the
// padding. A thread computes one element of positions.
template <class I>
__global__ void __launch_bounds__(kThreads, 4)
    pool_positions(int64_t* positions, const I* index, Pooling p, WorkItems items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items.count) return;
  positions[item] = std::max<int64_t>(0, position_in_image(p, thread_index<1>(item, items), index[item]));
}

// Returns 1 / divisor of a window: p.divisor unless 0, else the number of cells, as count_include_pad tells.
template <class T> __device__ __forceinline__ T weight_of(const Pooling& p, const Window& window) {
  if (p.divisor) return T(1) / static_cast<T>(p.divisor);
  if (p.count_include_pad)
    return T(1) /
           static_cast<T>(int64_t(window.d.padded_length) * window.h.padded_length * window.w.padded_length);
  return T(1) / static_cast<T>(cells_of(window.d) * cells_of(window.h) * cells_of(window.w));
}

// y[o] = weight_of(window o) * sum of x over its cells. A thread computes `vector` channels of one o.
template <class T, int vector>
__global__ void __launch_bounds__(kThreads, 4) pool_mean(T* y, const T* x, Pooling p, WorkItems items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items.count) return;
  const ThreadIndex s = thread_index<vector>(item, items);
  const Window window = window_of(p, s);
  Vector<compute_t<T>, vector> sum{};
  for_each_cell(p, s, window, [&](int32_t, int64_t at) {
    const auto cell = load<vector>(x + at);
#pragma unroll
    for (int k = 0; k < vector; ++k) sum.v[k] += widen(cell.v[k]);
  });
  const auto weight = weight_of<compute_t<T>>(p, window);
  Vector<T, vector> mean;
#pragma unroll
  for (int k = 0; k < vector; ++k) mean.v[k] = convert<T>(sum.v[k] * weight);
  store(y + item * vector, mean);
}

// dx[i] = sum of dy[o] * weight[o] over the windows o that contain i. A thread computes `vector` channels of one
// position of dx. Uses fma because the compiler contracts the multiply-add of the CPU kernel.
template <class T, int vector>
__global__ void __launch_bounds__(kThreads, 4) pool_spread(T* dx, const T* dy, Pooling p, WorkItems items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items.count) return;
  const ThreadIndex s = thread_index<vector>(item, items);
  Vector<compute_t<T>, vector> sum{};
  for_each_window_over(p, s, [&](const Window& window, int32_t, int64_t at) {
    const auto weight = weight_of<compute_t<T>>(p, window);
    const auto g = load<vector>(dy + at);
#pragma unroll
    for (int k = 0; k < vector; ++k) sum.v[k] = m::fma(widen(g.v[k]), weight, sum.v[k]);
  });
  Vector<T, vector> slope;
#pragma unroll
  for (int k = 0; k < vector; ++k) slope.v[k] = convert<T>(sum.v[k]);
  store(dx + input_at(p, s, s.d, s.h, s.w),
        slope);  // item * vector would take two more registers, which spill
}

// Calls f<I>() with the type I of an index tensor: uint8_t if windows have at most 256 cells, else int32_t.
template <class F> void with_index(DType dtype, F&& f) {
  dtype == DType::kU8 ? f.template operator()<uint8_t>() : f.template operator()<int32_t>();
}

// Calls f<vector>() with the number of channels per thread: those that make 16 bytes of the widest operand, or 1
// if the channels are no multiple of that number or an operand is not aligned.
template <class F, class... T> void with_vector(const Pooling& p, F&& f, const T*... operands) {
  constexpr int kVector = kVectorSize<T...>;
  const bool fits = p.channels % kVector == 0 && (is_aligned(operands, kVector * sizeof(T)) && ...);
  fits ? f.template operator()<kVector>() : f.template operator()<1>();
}

// Launches a kernel over all positions of the input (over_input) or the output, with `vector` channels per thread.
template <class... P, class... A>
void run(const char* op, void (*kernel)(P...), int vector, const Pooling& p, bool over_input,
         cudaStream_t stream, A... args) {
  const auto side = [=](const PoolAxis<int32_t>& a) { return over_input ? a.in : a.out; };
  const int64_t vectors = p.channels / vector, count = p.images * side(p.d) * side(p.h) * side(p.w) * vectors;
  if (count == 0) return;
  const WorkItems items{count,
                        vectors,
                        Divider(side(p.d)),
                        Divider(side(p.h)),
                        Divider(side(p.w)),
                        count <= kMaxDividend ? Divider(vectors) : Divider()};
  launch(op, kernel, {blocks_for(count, kThreads), kThreads}, stream, args..., p, items);
}

}  // namespace

void max_pool(const char* op, const View& y, const View& index, const View& x, const Pooling& p,
              cudaStream_t stream) {
  with_float(x.dtype, [&]<class T>(T) {
    with_index(index.dtype, [&]<class I>() {
      const auto start = [&]<int vector>() {
        run(op, pool_largest<T, I, vector>, vector, p, false, stream, y.as<T>(), index.as<I>(), x.as<T>());
      };
      with_vector(p, start, y.as<T>(), x.as<T>(), index.as<I>());
    });
  });
}
void max_pool_scatter(const char* op, const View& dx, const View& dy, const View& index, const Pooling& p,
                      cudaStream_t stream) {
  with_float(dx.dtype, [&]<class T>(T) {
    with_index(index.dtype, [&]<class I>() {
      const auto start = [&]<int vector>() {
        run(op, pool_scatter<T, I, vector>, vector, p, true, stream, dx.as<T>(), dy.as<T>(), index.as<I>());
      };
      with_vector(p, start, dx.as<T>(), dy.as<T>(), index.as<I>());
    });
  });
}
void max_pool_relu_grad(const char* op, const View& x, const View& dy, const Pooling& p,
                        cudaStream_t stream) {
  with_float(x.dtype, [&]<class T>(T) {
    const auto start = [&]<int vector>() {
      run(op, pool_relu_grad<T, vector>, vector, p, false, stream, x.as<T>(), dy.as<T>());
    };
    const int32_t* const winners = nullptr;  // int32_t in registers, which limits vectors to 4 channels
    with_vector(p, start, x.as<T>(), dy.as<T>(), winners);
  });
}

void max_pool_gather(const char* op, const View& y, const View& x, const View& index, const Pooling& p,
                     cudaStream_t stream) {
  with_float(x.dtype, [&]<class T>(T) {
    with_index(index.dtype, [&]<class I>() {
      run(op, pool_gather<T, I>, 1, p, false, stream, y.as<T>(), x.as<T>(), index.as<I>());
    });
  });
}
void max_pool_positions(const char* op, int64_t* positions, const View& index, const Pooling& p,
                        cudaStream_t stream) {
  with_index(index.dtype,
             [&]<class I>() { run(op, pool_positions<I>, 1, p, false, stream, positions, index.as<I>()); });
}
void avg_pool(const char* op, const View& y, const View& x, const Pooling& p, cudaStream_t stream) {
  with_float(x.dtype, [&]<class T>(T) {
    const auto start = [&]<int vector>() {
      run(op, pool_mean<T, vector>, vector, p, false, stream, y.as<T>(), x.as<T>());
    };
    with_vector(p, start, y.as<T>(), x.as<T>());
  });
}
void avg_pool_spread(const char* op, const View& dx, const View& dy, const Pooling& p, cudaStream_t stream) {
  with_float(dx.dtype, [&]<class T>(T) {
    const auto start = [&]<int vector>() {
      run(op, pool_spread<T, vector>, vector, p, true, stream, dx.as<T>(), dy.as<T>());
    };
    with_vector(p, start, dx.as<T>(), dy.as<T>());
  });
}

}  // namespace gradus::cuda
