// y[i] = exp(x[i] - max(x)) / sum_k exp(x[k] - max(x)) over the n elements of a row. A team of threads
// (teams.h) keeps its row in registers if it fits; otherwise it reads the row twice. A thread adds a few
// elements in T, and these sums in f64.
#include "gradus/tensor/cuda/kernels/softmax.h"

#include "gradus/tensor/cuda/kernels/powers.h"
#include "gradus/tensor/cuda/kernels/teams.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

// y[o, i, j] = e^(x[o, i, j] - m) / s, or x[o, i, j] - m - log(s) if `log`, with m = max_i x[o, i, j] and s =
// sum_i e^(x[o, i, j] - m). A team of threads (teams.h) has row (o, j), a thread at most `held` of its
// elements, in registers.
template <class T, int vector, int held>
__global__ void __launch_bounds__(kTeamThreads, 4) softmax_held(T* y, const T* x, Teams teams, bool log) {
  constexpr int kEach = held / vector;
  const Member me = member_of(teams);
  auto& places = shared_memory<Places<T>>();
  Vector<T, vector> v[kEach];
  T top = kLowest<T>, part = 0;
  for_each_held<kEach, vector>(teams, me, [&](int e, int i) {
    v[e] = load_of_line<vector>(x, teams, me, i);
#pragma unroll
    for (int k = 0; k < vector; ++k) top = TakeLarger{}(top, v[e].v[k]);
  });
  top = merge_team(teams, top, places.top, TakeLarger{});
  for_each_held<kEach, vector>(teams, me, [&](int e, int) {
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      const T above = v[e].v[k] - top, power = m::exp(above);
      part += power;
      v[e].v[k] = log ? above : power;
    }
  });
  const T sum = static_cast<T>(merge_team(teams, static_cast<double>(part), places.sum, TakeSum{}));
  const T last = log ? m::log(sum) : 1 / sum;
  for_each_held<kEach, vector>(teams, me, [&](int e, int i) {
#pragma unroll
    for (int k = 0; k < vector; ++k) v[e].v[k] = log ? v[e].v[k] - last : v[e].v[k] * last;
    store_to_line(y, teams, me, i, v[e]);
  });
}

// The same for rows that do not fit registers: a team reads its row once for m and s, and once for y.
template <class T, int vector>
__global__ void __launch_bounds__(kTeamThreads, 4) softmax_long(T* y, const T* x, Teams teams, bool log) {
  const Member me = member_of(teams);
  const auto [top, sum] = sum_powers<vector>(x, teams, me, shared_memory<Places<T>>());
  const T last = log ? m::log(sum) : 1 / sum;
  for_each_share<vector>(teams, me, [&](int64_t i) {
    auto v = load_of_line<vector>(x, teams, me, i);
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      const T above = v.v[k] - top;
      v.v[k] = log ? above - last : m::exp(above) * last;
    }
    store_to_line(y, teams, me, i, v);
  });
}

template <class T, int n>
__device__ __forceinline__ T sum_of(const Vector<T, n>& dy, const Vector<T, n>& y, bool log) {
  T part = 0;
#pragma unroll
  for (int k = 0; k < n; ++k) part += log ? dy.v[k] : dy.v[k] * y.v[k];
  return part;
}
template <class T, int n>
__device__ __forceinline__ Vector<T, n> slope(const Vector<T, n>& dy, const Vector<T, n>& y, T sum,
                                              bool log) {
  Vector<T, n> dx;
#pragma unroll
  for (int k = 0; k < n; ++k) dx.v[k] = log ? dy.v[k] - m::exp(y.v[k]) * sum : y.v[k] * (dy.v[k] - sum);
  return dx;
}

// dx[o, i, j] = y * (dy - sum_i dy * y), or dy - e^y * sum_i dy if `log`, all at [o, i, j]. A team of threads
// has row (o, j), a thread at most `held` of its elements, in registers.
template <class T, int vector, int held>
__global__ void __launch_bounds__(kTeamThreads, 4)
    softmax_backward_held(T* dx, const T* dy, const T* y, Teams teams, bool log) {
  constexpr int kEach = held / vector;
  const Member me = member_of(teams);
  auto& places = shared_memory<Places<T>>();
  Vector<T, vector> g[kEach], v[kEach];
  T part = 0;
  for_each_held<kEach, vector>(teams, me, [&](int e, int i) {
    g[e] = load_of_line<vector>(dy, teams, me, i);
    v[e] = load_of_line<vector>(y, teams, me, i);
    part += sum_of(g[e], v[e], log);
  });
  const T sum = static_cast<T>(merge_team(teams, static_cast<double>(part), places.sum, TakeSum{}));
  for_each_held<kEach, vector>(
      teams, me, [&](int e, int i) { store_to_line(dx, teams, me, i, slope(g[e], v[e], sum, log)); });
}

// The same for rows that do not fit registers: a team reads its row twice.
template <class T, int vector>
__global__ void __launch_bounds__(kTeamThreads, 4)
    softmax_backward_long(T* dx, const T* dy, const T* y, Teams teams, bool log) {
  const Member me = member_of(teams);
  auto& places = shared_memory<Places<T>>();
  double part = 0;
  for_each_share<vector>(teams, me, [&](int64_t i) {
    part += static_cast<double>(
        sum_of(load_of_line<vector>(dy, teams, me, i), load_of_line<vector>(y, teams, me, i), log));
  });
  const T sum = static_cast<T>(merge_team(teams, part, places.sum, TakeSum{}));
  for_each_share<vector>(teams, me, [&](int64_t i) {
    store_to_line(
        dx, teams, me, i,
        slope(load_of_line<vector>(dy, teams, me, i), load_of_line<vector>(y, teams, me, i), sum, log));
  });
}

// Calls f<vector, held>(teams): held is 0 for lines that are too long to be held.
template <class T, class F> void with_teams(int64_t outer, int64_t n, int64_t inner, bool in_vectors, F&& f) {
  constexpr int kVector = kVectorSize<T>;
  const auto choose = [&]<int vector>() {
    constexpr int kMaxPerThread = vector == 1 ? 2 * kVector : 3 * kVector;  // what fits the registers
    const Teams teams = teams_for(outer, n, inner, vector, kMaxPerThread);
    if (n <= teams.lanes * kVector) return f.template operator()<vector, kVector>(teams);
    if (n <= teams.lanes * kMaxPerThread) return f.template operator()<vector, kMaxPerThread>(teams);
    f.template operator()<vector, 0>(teams);
  };
  in_vectors ? choose.template operator()<kVector>() : choose.template operator()<1>();
}

template <class T> Grid grid_of(const Teams& teams) {
  return {teams.blocks(), kTeamThreads, sizeof(Places<T>)};
}

}  // namespace

template <class T>
void softmax(const char* op, T* y, const T* x, int64_t outer, int64_t n, int64_t inner, bool log,
             cudaStream_t stream) {
  if (outer * n * inner == 0) return;
  const bool in_vectors = lie_in_vectors(n, inner, y, x);
  with_teams<T>(outer, n, inner, in_vectors, [&]<int vector, int held>(const Teams& teams) {
    if constexpr (held == 0)
      launch(op, softmax_long<T, vector>, grid_of<T>(teams), stream, y, x, teams, log);
    else
      launch(op, softmax_held<T, vector, held>, grid_of<T>(teams), stream, y, x, teams, log);
  });
}
template <class T>
void softmax_backward(const char* op, T* dx, const T* dy, const T* y, int64_t outer, int64_t n, int64_t inner,
                      bool log, cudaStream_t stream) {
  if (outer * n * inner == 0) return;
  const bool in_vectors = lie_in_vectors(n, inner, dx, dy, y);
  with_teams<T>(outer, n, inner, in_vectors, [&]<int vector, int held>(const Teams& teams) {
    if constexpr (held == 0)
      launch(op, softmax_backward_long<T, vector>, grid_of<T>(teams), stream, dx, dy, y, teams, log);
    else
      launch(op, softmax_backward_held<T, vector, held>, grid_of<T>(teams), stream, dx, dy, y, teams, log);
  });
}

template void softmax(const char*, float*, const float*, int64_t, int64_t, int64_t, bool, cudaStream_t);
template void softmax(const char*, double*, const double*, int64_t, int64_t, int64_t, bool, cudaStream_t);
template void softmax_backward(const char*, float*, const float*, const float*, int64_t, int64_t, int64_t,
                               bool, cudaStream_t);
template void softmax_backward(const char*, double*, const double*, const double*, int64_t, int64_t, int64_t,
                               bool, cudaStream_t);

}  // namespace gradus::cuda
