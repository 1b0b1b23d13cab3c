// The largest element of a line and the sum of the powers e^(x - largest), in one reading.
#pragma once

#include <limits>

#include "gradus/tensor/cuda/kernels/teams.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {

template <class T> inline constexpr T kLowest = -std::numeric_limits<T>::infinity();

struct TakeLarger {
  template <class T> __device__ T operator()(T a, T b) const { return b > a ? b : a; }
};
struct TakeSum {
  __device__ double operator()(double a, double b) const { return a + b; }
};

// Shared memory of teams.
template <class T> struct Places {
  T top[kTeamThreads];
  double sum[kTeamThreads];
};

template <class T> struct Powers {
  T top, sum;
};

// Of the elements that a thread has seen. A larger one changes what the sum is relative to. The powers of a
// vector are added in T, vectors in f64.
template <class T> struct PowersSoFar {
  T top = kLowest<T>;
  double sum = 0;

  template <int n> __device__ __forceinline__ void take(const Vector<T, n>& v) {
    T larger = top;
#pragma unroll
    for (int k = 0; k < n; ++k) larger = TakeLarger{}(larger, v.v[k]);
    if (larger > top) move_to(larger);
    T part = 0;
#pragma unroll
    for (int k = 0; k < n; ++k) part += v.v[k] == kLowest<T> ? T(0) : m::exp(v.v[k] - top);
    sum += static_cast<double>(part);
  }
  __device__ __forceinline__ void move_to(T new_top) {
    if (sum != 0) sum *= static_cast<double>(m::exp(top - new_top));
    top = new_top;
  }
};

// For the line of each team. All threads of the block call it.
template <int vector, class T>
__device__ __forceinline__ Powers<T> sum_powers(const T* x, const Teams& teams, const Member& me,
                                                Places<T>& places) {
  PowersSoFar<T> mine;
  for_each_share<vector>(teams, me, [&](int64_t i) { mine.take(load_of_line<vector>(x, teams, me, i)); });
  const T top = merge_team(teams, mine.top, places.top, TakeLarger{});
  mine.move_to(top);
  return {top, static_cast<T>(merge_team(teams, mine.sum, places.sum, TakeSum{}))};
}

}  // namespace gradus::cuda
