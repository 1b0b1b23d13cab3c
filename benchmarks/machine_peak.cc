#include "benchmarks/machine_peak.h"

#include <cstring>
#include <thread>
#include <vector>

#include "benchmarks/statistics.h"

namespace gradus::bench {
namespace {

typedef float V8 __attribute__((vector_size(32)));
typedef float V16 __attribute__((vector_size(64)));

// Independent chains of multiply-adds, enough to hide the latency; in the widest registers the CPU has.
template <class V>
[[gnu::always_inline]] inline float chains(int64_t iterations) {
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

template <class F>
void on_threads(int threads, F f) {
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(f, t);
  f(0);
  for (auto& w : workers) w.join();
}

}  // namespace

MachinePeak measure_machine_peak(int threads) {
  MachinePeak peak;
  const bool wide = __builtin_cpu_supports("avx512f");
  constexpr int64_t kIterations = 20'000'000;
  constexpr size_t kBytes = size_t{256} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  volatile float sink = 0;
  for (int round = 0; round < 5; ++round) {
    const double s = seconds_of([&] {
      on_threads(threads, [&](int) { sink = wide ? chains_512(kIterations) : chains_256(kIterations); });
    });
    peak.flops = std::max(peak.flops, 2.0 * 12 * (wide ? 16 : 8) * kIterations * threads / s);
    const double c = seconds_of([&] {
      on_threads(threads, [&](int t) {
        const size_t share = kBytes / threads;
        std::memcpy(to.data() + t * share, from.data() + t * share, share);
      });
    });
    peak.bytes_per_second = std::max(peak.bytes_per_second, 2.0 * kBytes / c);
  }
  return peak;
}

}  // namespace gradus::bench
