// y[i] = exp(x[i] - max(x)) / sum_k exp(x[k] - max(x)) over the n elements of a row. A thread group
// (thread_groups.h) keeps its row in registers if it fits; otherwise it reads the row twice. A thread adds a
// few elements in T; these partial sums are added in f64. A NaN in a row makes the whole row NaN, through the
// sum. Tensors are dense [outer, n, inner] with rows along n and elements E; T = compute_t<E> is float or
// double, `vector` the elements per memory access, `log` log_softmax.
#include "gradus/tensor/cuda/kernels/softmax.h"

#include "gradus/tensor/cuda/kernels/thread_groups.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

// y[o, i, j] = e^(x[o, i, j] - m) / s, or x[o, i, j] - m - log(s) if `log`, with m = max_k x[o, k, j] and s =
// sum_k e^(x[o, k, j] - m). A thread group (thread_groups.h) has row (o, j), a thread at most `cached` of its
// elements, in registers.
template <class E, int vector, int cached>
__global__ void __launch_bounds__(kBlockThreads, 4)
    softmax_cached(E* y, const E* x, ThreadGroups groups, bool log) {
  using T = compute_t<E>;
  constexpr int kEach = cached / vector;
  const ThreadIndex thread = thread_index(groups);
  auto& scratch = shared_memory<GroupScratch<T>>();
  Vector<T, vector> v[kEach];
  T row_max = kLowest<T>, partial_sum = 0;
  for_each_cached<kEach, vector>(groups, thread, [&](int e, int i) {
    v[e] = load_from_row<vector>(x, groups, thread, i);
#pragma unroll
    for (int k = 0; k < vector; ++k) row_max = MaxOp{}(row_max, v[e].v[k]);
  });
  row_max = merge_group(groups, row_max, scratch.row_max, MaxOp{});
  for_each_cached<kEach, vector>(groups, thread, [&](int e, int) {
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      const T above = v[e].v[k] - row_max, exp_x = m::exp(above);
      partial_sum += exp_x;
      v[e].v[k] = log ? above : exp_x;
    }
  });
  const T sum = static_cast<T>(merge_group(groups, static_cast<double>(partial_sum), scratch.sum, AddOp{}));
  const T norm = log ? m::log(sum) : 1 / sum;
  for_each_cached<kEach, vector>(groups, thread, [&](int e, int i) {
#pragma unroll
    for (int k = 0; k < vector; ++k) v[e].v[k] = log ? v[e].v[k] - norm : v[e].v[k] * norm;
    store_to_row(y, groups, thread, i, v[e]);
  });
}

// The same for rows that do not fit registers: a thread group reads its row once for m and s, and once for y.
template <class E, int vector>
__global__ void __launch_bounds__(kBlockThreads, 4)
    softmax_long(E* y, const E* x, ThreadGroups groups, bool log) {
  using T = compute_t<E>;
  const ThreadIndex thread = thread_index(groups);
  const auto [row_max, sum] = sum_exp<vector>(x, groups, thread, shared_memory<GroupScratch<T>>());
  const T norm = log ? m::log(sum) : 1 / sum;
  for_each_vector<vector>(groups, thread, [&](int64_t i) {
    auto v = load_from_row<vector>(x, groups, thread, i);
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      const T above = v.v[k] - row_max;
      v.v[k] = log ? above - norm : m::exp(above) * norm;
    }
    store_to_row(y, groups, thread, i, v);
  });
}

// Returns the sum of dy * y, or of dy if `log`, over n elements of a row.
template <class T, int n>
__device__ __forceinline__ T sum_of(const Vector<T, n>& dy, const Vector<T, n>& y, bool log) {
  T partial_sum = 0;
#pragma unroll
  for (int k = 0; k < n; ++k) partial_sum += log ? dy.v[k] : dy.v[k] * y.v[k];
  return partial_sum;
}
// Returns dx for n elements, given the sum over the row.
template <class T, int n>
__device__ __forceinline__ Vector<T, n> dx_of(const Vector<T, n>& dy, const Vector<T, n>& y, T sum,
                                              bool log) {
  Vector<T, n> dx;
#pragma unroll
  for (int k = 0; k < n; ++k) dx.v[k] = log ? dy.v[k] - m::exp(y.v[k]) * sum : y.v[k] * (dy.v[k] - sum);
  return dx;
}

// dx[o, i, j] = y * (dy - sum_k dy[o, k, j] * y[o, k, j]), or dy - e^y * sum_k dy[o, k, j] if `log`. One
// thread group per row (o, j); each thread keeps at most `cached` elements of the row in registers.
template <class E, int vector, int cached>
__global__ void __launch_bounds__(kBlockThreads, 4)
    softmax_backward_cached(E* dx, const E* dy, const E* y, ThreadGroups groups, bool log) {
  using T = compute_t<E>;
  constexpr int kEach = cached / vector;
  const ThreadIndex thread = thread_index(groups);
  auto& scratch = shared_memory<GroupScratch<T>>();
  Vector<T, vector> g[kEach], v[kEach];
  T partial_sum = 0;
  for_each_cached<kEach, vector>(groups, thread, [&](int e, int i) {
    g[e] = load_from_row<vector>(dy, groups, thread, i);
    v[e] = load_from_row<vector>(y, groups, thread, i);
    partial_sum += sum_of(g[e], v[e], log);
  });
  const T sum = static_cast<T>(merge_group(groups, static_cast<double>(partial_sum), scratch.sum, AddOp{}));
  for_each_cached<kEach, vector>(groups, thread, [&](int e, int i) {
    store_to_row(dx, groups, thread, i, dx_of(g[e], v[e], sum, log));
  });
}

// The same for rows that do not fit registers: a thread group reads its row twice.
template <class E, int vector>
__global__ void __launch_bounds__(kBlockThreads, 4)
    softmax_backward_long(E* dx, const E* dy, const E* y, ThreadGroups groups, bool log) {
  using T = compute_t<E>;
  const ThreadIndex thread = thread_index(groups);
  auto& scratch = shared_memory<GroupScratch<T>>();
  double partial_sum = 0;
  for_each_vector<vector>(groups, thread, [&](int64_t i) {
    partial_sum += static_cast<double>(sum_of(load_from_row<vector>(dy, groups, thread, i),
                                              load_from_row<vector>(y, groups, thread, i), log));
  });
  const T sum = static_cast<T>(merge_group(groups, partial_sum, scratch.sum, AddOp{}));
  for_each_vector<vector>(groups, thread, [&](int64_t i) {
    store_to_row(dx, groups, thread, i,
                 dx_of(load_from_row<vector>(dy, groups, thread, i),
                       load_from_row<vector>(y, groups, thread, i), sum, log));
  });
}

// Calls f<vector, cached>(groups): cached is the number of elements per thread in registers; 0: too many.
template <class E, class F>
void with_groups(int64_t outer, int64_t n, int64_t inner, bool in_vectors, F&& f) {
  const auto choose = [&]<int vector>() {
    constexpr int kMinPerThread = std::max(vector, kVectorSize<compute_t<E>>);
    constexpr int kMaxPerThread =
        kMinPerThread * (vector == 1 || sizeof(E) == 2 ? 2 : 3);  // what fits the registers
    const ThreadGroups groups = thread_groups_for(outer, n, inner, vector, kMaxPerThread);
    if (n <= groups.size * kMinPerThread) return f.template operator()<vector, kMinPerThread>(groups);
    if (n <= groups.size * kMaxPerThread) return f.template operator()<vector, kMaxPerThread>(groups);
    f.template operator()<vector, 0>(groups);
  };
  in_vectors ? choose.template operator()<kVectorSize<E>>() : choose.template operator()<1>();
}

template <class E> Grid grid_of(const ThreadGroups& groups) {
  return {groups.blocks(), kBlockThreads, sizeof(GroupScratch<compute_t<E>>)};
}

}  // namespace

template <class E>
void softmax(const char* op, E* y, const E* x, int64_t outer, int64_t n, int64_t inner, bool log,
             cudaStream_t stream) {
  if (outer * n * inner == 0) return;
  const bool in_vectors = has_vector_rows(n, inner, y, x);
  with_groups<E>(outer, n, inner, in_vectors, [&]<int vector, int cached>(const ThreadGroups& groups) {
    if constexpr (cached == 0)
      launch(op, softmax_long<E, vector>, grid_of<E>(groups), stream, y, x, groups, log);
    else
      launch(op, softmax_cached<E, vector, cached>, grid_of<E>(groups), stream, y, x, groups, log);
  });
}
template <class E>
void softmax_backward(const char* op, E* dx, const E* dy, const E* y, int64_t outer, int64_t n, int64_t inner,
                      bool log, cudaStream_t stream) {
  if (outer * n * inner == 0) return;
  const bool in_vectors = has_vector_rows(n, inner, dx, dy, y);
  with_groups<E>(outer, n, inner, in_vectors, [&]<int vector, int cached>(const ThreadGroups& groups) {
    if constexpr (cached == 0)
      launch(op, softmax_backward_long<E, vector>, grid_of<E>(groups), stream, dx, dy, y, groups, log);
    else
      launch(op, softmax_backward_cached<E, vector, cached>, grid_of<E>(groups), stream, dx, dy, y, groups,
             log);
  });
}

#define GRADUS_INSTANTIATE(E)                                                                          \
  template void softmax(const char*, E*, const E*, int64_t, int64_t, int64_t, bool, cudaStream_t);     \
  template void softmax_backward(const char*, E*, const E*, const E*, int64_t, int64_t, int64_t, bool, \
                                 cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
GRADUS_INSTANTIATE(bf16)
GRADUS_INSTANTIATE(f16)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
