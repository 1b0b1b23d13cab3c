// Implementation of machine_peak.h: FMA chains in registers for the peak rate, and streaming loops for the
// memory bandwidth, compiled per instruction set with Highway.
#include "benchmarks/machine_peak.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/machine_peak.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "benchmarks/statistics.h"
#include "gradus/tensor/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

constexpr int kChains = 12;

// Runs kChains independent chains of FMAs, enough to hide the latency. Returns a value that depends on all of
// them.
float chains(int64_t iterations) {
  const Floats a = hn::Set(kFloats, 0.999f), b = hn::Set(kFloats, 1e-3f);
  Floats sums[kChains];
  for (Floats& sum : sums) sum = b;
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) sums[k] = hn::MulAdd(sums[k], a, b);
  }
  float sum = 0;
  for (const Floats& v : sums) sum += hn::GetLane(v);
  return sum;
}

// Returns the number of floating-point operations of one iteration.
int flops_of_an_iteration() { return 2 * kChains * kLanes; }

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

// Reads R arrays and writes W arrays: every output is the sum of the inputs. begin and end are multiples of
// 32 elements. Without outputs, the result depends on all inputs, so that the compiler keeps the loads.
template <int R, int W, bool kNonTemporal>
float pass(float* const* in, float* const* out, int64_t begin, int64_t end) {
  constexpr int kVectors = 32 / kLanes;
  Floats total[kVectors];
  for (Floats& t : total) t = hn::Zero(kFloats);
  for (int64_t i = begin; i < end; i += 32) {
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) {
      Floats v = hn::Set(kFloats, 1);
      if constexpr (R > 0) v = hn::Load(kFloats, in[0] + i + kLanes * k);
      for (int r = 1; r < R; ++r) v = v + hn::Load(kFloats, in[r] + i + kLanes * k);
      for (int w = 0; w < W; ++w) {
        if constexpr (kNonTemporal)
          hn::Stream(v, kFloats, out[w] + i + kLanes * k);
        else
          hn::Store(v, kFloats, out[w] + i + kLanes * k);
      }
      if constexpr (W == 0) total[k] = total[k] + v;
    }
  }
  float sum = 0;
  for (const Floats& t : total) sum += hn::GetLane(t);
  return sum;
}

using Pass = float (*)(float* const*, float* const*, int64_t, int64_t);
// A number of arrays to read and to write, with regular and with non-temporal stores.
struct Mix {
  int reads, writes;
  Pass plain, streaming;
};
template <int R, int W> constexpr Mix mix_of() { return {R, W, &pass<R, W, false>, &pass<R, W, true>}; }
constexpr Mix kMixes[] = {mix_of<1, 0>(), mix_of<4, 1>(), mix_of<3, 1>(), mix_of<2, 1>(),
                          mix_of<3, 2>(), mix_of<1, 1>(), mix_of<1, 2>(), mix_of<0, 1>()};

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace gradus::bench {
namespace {

using cpu::HWY_NAMESPACE::kMixes, cpu::HWY_NAMESPACE::Mix, cpu::HWY_NAMESPACE::Pass;

template <class F> void on_threads(int threads, F f) {
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(f, t);
  f(0);
  for (auto& w : workers) w.join();
}

// Returns bytes per second of the fastest pass.
double measure(const Mix& mix, int threads) {
  constexpr int64_t kElements = int64_t{1} << 25;  // 128 MiB per array
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
  constexpr int64_t kIterations = 20'000'000;
  volatile float sink = 0;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double s =
        seconds_of([&] { on_threads(threads, [&](int) { sink = GRADUS_DISPATCH(chains)(kIterations); }); });
    best = std::max(best, double(GRADUS_DISPATCH(flops_of_an_iteration)()) * kIterations * threads / s);
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
#endif
