// Teams: the threads of a block that work on one line of a dense tensor seen as [outer, n, inner]. A line is
// the n elements at one position of outer and inner.
//
// Threads of a team are neighbors where elements of a line are. Otherwise neighboring threads take
// neighboring lines. Lane `lane` of `lanes` takes vectors `lane`, `lane + lanes` ... of its line.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {

inline constexpr int kTeamThreads = 256;  // of a block

struct Teams {
  int64_t lines, n, inner;
  int lanes;  // threads of a team: a power of two
  int apart;  // from a thread to the next one of its team: 1, or the number of teams in a block

  int64_t blocks() const { return blocks_for(lines, kTeamThreads / lanes); }
};

// Returns teams in which a thread takes at most `most` elements, if a block is enough for that. Vectors are
// of neighbors in a line.
inline Teams teams_for(int64_t outer, int64_t n, int64_t inner, int vector, int most) {
  const auto power_of_two = [](int64_t least) { return static_cast<int>(std::bit_ceil(uint64_t(least))); };
  Teams teams{outer * inner, n, inner, 1, 1};
  if (inner == 1) {
    const int64_t vectors = std::max<int64_t>(1, blocks_for(n, vector));
    teams.lanes = n > kWarp * most ? kTeamThreads : power_of_two(std::min<int64_t>(vectors, kWarp));
  } else {
    // At least 8 lines side by side: a sector of 32 bytes, or more.
    teams.lanes = power_of_two(std::clamp<int64_t>(blocks_for(n, most), 1, kTeamThreads / 8));
    teams.apart = kTeamThreads / teams.lanes;
  }
  return teams;
}

// The calling thread's place.
struct Member {
  int lane;       // its number in the team
  int64_t line;   // the line's number
  int64_t first;  // where it begins
  int64_t limit;  // n, or 0 where there is no such line
};
__device__ __forceinline__ Member member_of(const Teams& t) {
  const int thread = threadIdx.x, each = kTeamThreads / t.lanes;
  Member me;
  me.lane = t.apart == 1 ? thread % t.lanes : thread / t.apart;
  me.line = int64_t{blockIdx.x} * each + (t.apart == 1 ? thread / t.lanes : thread % t.apart);
  me.first = me.line / t.inner * t.n * t.inner + me.line % t.inner;
  me.limit = me.line < t.lines ? t.n : 0;
  return me;
}

// What the threads of each team have, combined, for all of them: by shuffles, and by `places` where the teams
// fill more than a warp. All threads of the block call it. merge(a, b) is merge(b, a).
template <class T, class F>
__device__ __forceinline__ T merge_team(const Teams& t, T value, T (&places)[kTeamThreads], F&& merge) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2)
    if (d >= t.apart && d < t.apart * t.lanes) value = merge(value, __shfl_xor_sync(kAllLanes, value, d));
  if (t.apart * t.lanes <= kWarp) return value;
  const int step = std::max(t.apart, int{kWarp});
  places[threadIdx.x] = value;
  __syncthreads();
  value = places[threadIdx.x % step];
  for (int at = threadIdx.x % step + step; at < kTeamThreads; at += step) value = merge(value, places[at]);
  return value;
}

// A vector at element i of a line.
template <int vector, class T>
__device__ __forceinline__ Vector<T, vector> load_of_line(const T* x, const Teams& t, const Member& me,
                                                          int64_t i) {
  return load<vector>(x + me.first + (vector == 1 ? i * t.inner : i));
}
template <int vector, class T>
__device__ __forceinline__ void store_to_line(T* y, const Teams& t, const Member& me, int64_t i,
                                              const Vector<T, vector>& v) {
  store(y + me.first + (vector == 1 ? i * t.inner : i), v);
}

// Calls f(e, i) for each vector of the calling thread, e of at most `each`, at element i of its line: one
// that the team can hold, so i is an int.
template <int each, int vector, class F>
__device__ __forceinline__ void for_each_held(const Teams& t, const Member& me, F&& f) {
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int i = (e * t.lanes + me.lane) * vector;
    if (i < static_cast<int>(me.limit)) f(e, i);
  }
}
// Calls f(i) for each vector, however many these are.
template <int vector, class F>
__device__ __forceinline__ void for_each_share(const Teams& t, const Member& me, F&& f) {
  for (int64_t i = int64_t(me.lane) * vector; i < me.limit; i += int64_t(t.lanes) * vector) f(i);
}

// Whether lines of these arrays are made of whole vectors of 16 bytes.
template <class T, class... More>
bool lie_in_vectors(int64_t n, int64_t inner, const T* x, const More*... more) {
  return inner == 1 && n % kVectorSize<T> == 0 && is_aligned(x, 16) && (is_aligned(more, 16) && ...);
}

}  // namespace gradus::cuda
