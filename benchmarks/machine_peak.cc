#include "benchmarks/machine_peak.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/statistics.h"

namespace gradus::bench {
namespace {

typedef float V8 __attribute__((vector_size(32)));
typedef float V16 __attribute__((vector_size(64)));

// Independent chains of multiply-adds, enough to hide the latency; in the widest registers the CPU has.
template <class V> [[gnu::always_inline]] inline float chains(int64_t iterations) {
  const V a = V{} + 0.999f, b = V{} + 1e-3f;
  V acc[12];
  for (V& v : acc) v = b;
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) acc[k] = acc[k] * a + b;
  }
  float sum = 0;
  for (const V& v : acc) sum += v[0];
  return sum;
}
[[gnu::target("avx512f")]] float chains_512(int64_t n) { return chains<V16>(n); }
float chains_256(int64_t n) { return chains<V8>(n); }

template <class F> void on_threads(int threads, F f) {
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(f, t);
  f(0);
  for (auto& w : workers) w.join();
}

// Reads R arrays and writes W: every output is the sum of the inputs. Returns something that
// depends on all of it.
template <int R, int W, bool kNonTemporal>
float pass(float* const* in, float* const* out, int64_t begin, int64_t end) {
  __m256 total[4] = {};
  for (int64_t i = begin; i < end; i += 32) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      __m256 v = _mm256_set1_ps(1);
      if constexpr (R > 0) v = _mm256_load_ps(in[0] + i + 8 * k);
      for (int r = 1; r < R; ++r) v = _mm256_add_ps(v, _mm256_load_ps(in[r] + i + 8 * k));
      for (int w = 0; w < W; ++w) {
        if constexpr (kNonTemporal)
          _mm256_stream_ps(out[w] + i + 8 * k, v);
        else
          _mm256_store_ps(out[w] + i + 8 * k, v);
      }
      if constexpr (W == 0) total[k] = _mm256_add_ps(total[k], v);
    }
  }
  return total[0][0] + total[1][1] + total[2][2] + total[3][3];
}

using Pass = float (*)(float* const*, float* const*, int64_t, int64_t);
struct Mix {
  int reads, writes;
  Pass plain, streaming;
};
template <int R, int W> constexpr Mix mix_of() { return {R, W, &pass<R, W, false>, &pass<R, W, true>}; }
const Mix kMixes[] = {mix_of<1, 0>(), mix_of<4, 1>(), mix_of<3, 1>(), mix_of<2, 1>(),
                      mix_of<3, 2>(), mix_of<1, 1>(), mix_of<1, 2>(), mix_of<0, 1>()};

double measure(const Mix& mix, int threads) {
  constexpr int64_t kElements = int64_t{1} << 25;  // 128 MiB an array
  std::vector<std::unique_ptr<float, decltype(&std::free)>> memory;
  float *in[4] = {}, *out[2] = {};
  auto array = [&] {
    auto* p = static_cast<float*>(std::aligned_alloc(4096, kElements * sizeof(float)));
    std::fill_n(p, kElements, 1.f);
    memory.emplace_back(p, &std::free);
    return p;
  };
  for (int r = 0; r < mix.reads; ++r) in[r] = array();
  for (int w = 0; w < mix.writes; ++w) out[w] = array();
  volatile float sink = 0;
  double best = 1e9;
  for (int round = 0; round < 6; ++round) {
    for (Pass p : {mix.plain, mix.streaming}) {
      best = std::min(best, seconds_of([&] {
                        on_threads(threads, [&](int t) {
                          sink = p(in, out, kElements / 32 * t / threads * 32,
                                   kElements / 32 * (t + 1) / threads * 32);
                        });
                      }));
    }
  }
  return double(mix.reads + mix.writes) * kElements * sizeof(float) / best;
}

}  // namespace

double peak_flops(int threads) {
  const bool wide = __builtin_cpu_supports("avx512f");
  constexpr int64_t kIterations = 20'000'000;
  volatile float sink = 0;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double s = seconds_of([&] {
      on_threads(threads, [&](int) { sink = wide ? chains_512(kIterations) : chains_256(kIterations); });
    });
    best = std::max(best, 2.0 * 12 * (wide ? 16 : 8) * kIterations * threads / s);
  }
  return best;
}

double peak_bandwidth(int threads, double reads, double writes) {
  const double share = writes / (reads + writes);
  const Mix* closest = &kMixes[0];
  const auto off = [&](const Mix& m) { return std::abs(double(m.writes) / (m.reads + m.writes) - share); };
  for (const Mix& m : kMixes)
    if (off(m) < off(*closest)) closest = &m;
  static std::map<std::pair<const Mix*, int>, double> known;
  double& value = known[{closest, threads}];
  if (value == 0) value = measure(*closest, threads);
  return value;
}

}  // namespace gradus::bench
