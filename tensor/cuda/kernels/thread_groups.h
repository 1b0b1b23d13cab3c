// Thread groups: groups of threads of a block that reduce the rows of a dense tensor seen as [outer, n,
// inner]. A row is the n elements at one position of outer and inner, with stride `inner`. Kernels are
// launched with groups.blocks() blocks of kBlockThreads threads; one group reduces one row. sum_exp() is the
// softmax denominator of a row.
//
// Threads of a group are neighbors if elements of a row are. Otherwise neighboring threads take neighboring
// rows. The thread of rank r takes vectors r, r + size, ... of its row.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {

inline constexpr int kBlockThreads = 256;

struct ThreadGroups {
  int64_t rows, n, inner;
  int size;    // threads of a group: a power of two
  int stride;  // from a thread to the next one of its group: 1, or the number of groups in a block

  int64_t blocks() const { return blocks_for(rows, kBlockThreads / size); }
};

// Returns groups in which a thread takes at most `max_elements` elements, if a block is enough for that.
// `vector` is the number of adjacent elements of a row that a thread loads at once; 1 if inner > 1.
inline ThreadGroups thread_groups_for(int64_t outer, int64_t n, int64_t inner, int vector, int max_elements) {
  const auto power_of_two = [](int64_t least) { return static_cast<int>(std::bit_ceil(uint64_t(least))); };
  ThreadGroups groups{outer * inner, n, inner, 1, 1};
  if (inner == 1) {
    const int64_t vectors = std::max<int64_t>(1, blocks_for(n, vector));
    groups.size = n > kWarp * max_elements ? kBlockThreads : power_of_two(std::min<int64_t>(vectors, kWarp));
  } else {
    // At least 8 rows side by side: a sector of 32 bytes, or more.
    groups.size = power_of_two(std::clamp<int64_t>(blocks_for(n, max_elements), 1, kBlockThreads / 8));
    groups.stride = kBlockThreads / groups.size;
  }
  return groups;
}

// The row of the calling thread, and its rank in the group of the row.
struct ThreadIndex {
  int rank;
  int64_t row;
  int64_t first;  // offset of the row's first element
  int64_t limit;  // n, or 0 if there is no such row
};
__device__ __forceinline__ ThreadIndex thread_index(const ThreadGroups& g) {
  const int thread = threadIdx.x, each = kBlockThreads / g.size;
  ThreadIndex index;
  index.rank = g.stride == 1 ? thread % g.size : thread / g.stride;
  index.row = int64_t{blockIdx.x} * each + (g.stride == 1 ? thread / g.size : thread % g.stride);
  index.first = index.row / g.inner * g.n * g.inner + index.row % g.inner;
  index.limit = index.row < g.rows ? g.n : 0;
  return index;
}

// Returns the combined value of all threads of a group to each of them. stride * size must be at most kWarp, or
// kBlockThreads, as in thread_groups_for: the threads of a group are in one warp, or in all warps of the block,
// which combine through `scratch`. `scratch` must not be reused before a __syncthreads(). All threads of the
// block must call merge_group. merge(a, b) must equal merge(b, a).
template <class T, class F>
__device__ __forceinline__ T merge_group(const ThreadGroups& g, T value, T (&scratch)[kBlockThreads],
                                         F&& merge) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2)
    if (d >= g.stride && d < g.stride * g.size) value = merge(value, __shfl_xor_sync(kAllLanes, value, d));
  if (g.stride * g.size <= kWarp) return value;
  const int step = std::max(g.stride, int{kWarp});
  scratch[threadIdx.x] = value;
  __syncthreads();
  value = scratch[threadIdx.x % step];
  for (int at = threadIdx.x % step + step; at < kBlockThreads; at += step) value = merge(value, scratch[at]);
  return value;
}

// Load or store the vector at element i of a row. 16-bit floats are converted from and to f32.
template <int vector, class T>
__device__ __forceinline__ Vector<compute_t<T>, vector> load_from_row(const T* x, const ThreadGroups& g,
                                                                      const ThreadIndex& thread, int64_t i) {
  const auto v = load<vector>(x + thread.first + (vector == 1 ? i * g.inner : i));
  Vector<compute_t<T>, vector> wide;
#pragma unroll
  for (int k = 0; k < vector; ++k) wide.v[k] = widen(v.v[k]);
  return wide;
}
template <int vector, class T, class C>
__device__ __forceinline__ void store_to_row(T* y, const ThreadGroups& g, const ThreadIndex& thread,
                                             int64_t i, const Vector<C, vector>& wide) {
  Vector<T, vector> v;
#pragma unroll
  for (int k = 0; k < vector; ++k) v.v[k] = convert<T>(wide.v[k]);
  store(y + thread.first + (vector == 1 ? i * g.inner : i), v);
}

// Calls f(e, i) for each vector of the calling thread, e < each, at element i of a row of at most g.size *
// each * vector elements, which the group caches in registers; i fits an int.
template <int each, int vector, class F>
__device__ __forceinline__ void for_each_cached(const ThreadGroups& g, const ThreadIndex& thread, F&& f) {
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int i = (e * g.size + thread.rank) * vector;
    if (i < static_cast<int>(thread.limit)) f(e, i);
  }
}
// Calls f(i) for each vector of the calling thread, for rows of any length.
template <int vector, class F>
__device__ __forceinline__ void for_each_vector(const ThreadGroups& g, const ThreadIndex& thread, F&& f) {
  for (int64_t i = int64_t(thread.rank) * vector; i < thread.limit; i += int64_t(g.size) * vector) f(i);
}

// Whether rows of these arrays are made of whole vectors of 16 bytes.
template <class T, class... More>
bool has_vector_rows(int64_t n, int64_t inner, const T* x, const More*... more) {
  return inner == 1 && n % kVectorSize<T> == 0 && is_aligned(x, 16) && (is_aligned(more, 16) && ...);
}

template <class T> inline constexpr T kLowest = -std::numeric_limits<T>::infinity();

struct MaxOp {
  template <class T> __device__ T operator()(T a, T b) const { return b > a ? b : a; }
};
struct AddOp {
  __device__ double operator()(double a, double b) const { return a + b; }
};

// Shared memory of a block.
template <class T> struct GroupScratch {
  T row_max[kBlockThreads];
  double sum[kBlockThreads];
};

// The largest element of a row, and the sum of e^(x - row_max).
template <class T> struct ExpSum {
  T row_max, sum;
};

// An ExpSum of the elements added so far, in one pass (Milakov and Gimelshein, Online normalizer calculation
// for softmax). A new maximum rescales the sum. Exponentials of a vector are added in T, vectors in f64.
template <class T> struct OnlineExpSum {
  T row_max = kLowest<T>;
  double sum = 0;

  template <int n> __device__ __forceinline__ void add(const Vector<T, n>& v) {
    T larger = row_max;
#pragma unroll
    for (int k = 0; k < n; ++k) larger = MaxOp{}(larger, v.v[k]);
    if (larger > row_max) rescale_to(larger);
    T partial_sum = 0;
#pragma unroll
    for (int k = 0; k < n; ++k) partial_sum += v.v[k] == kLowest<T> ? T(0) : m::exp(v.v[k] - row_max);
    sum += static_cast<double>(partial_sum);
  }
  __device__ __forceinline__ void rescale_to(T new_max) {
    if (sum != 0) sum *= static_cast<double>(m::exp(row_max - new_max));
    row_max = new_max;
  }
};

// Returns the ExpSum of the row of the calling thread. All threads of the block call it.
template <int vector, class E, class T = compute_t<E>>
__device__ __forceinline__ ExpSum<T> sum_exp(const E* x, const ThreadGroups& groups,
                                             const ThreadIndex& thread, GroupScratch<T>& scratch) {
  OnlineExpSum<T> local;
  for_each_vector<vector>(groups, thread,
                          [&](int64_t i) { local.add(load_from_row<vector>(x, groups, thread, i)); });
  const T row_max = merge_group(groups, local.row_max, scratch.row_max, MaxOp{});
  local.rescale_to(row_max);
  return {row_max, static_cast<T>(merge_group(groups, local.sum, scratch.sum, AddOp{}))};
}

}  // namespace gradus::cuda
