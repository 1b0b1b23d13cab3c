// Chooses the instruction set level of kernels: the highest that CPUID reports, limited by the environment
// variable GRADUS_CPU. Below AVX-512 the level is kAvx2, because Gradus is compiled for AVX2 at least.
#include "gradus/tensor/runtime/processor.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "gradus/tensor/base/error.h"

namespace gradus::cpu {
namespace {

// Names of the values of Level, in order.
constexpr std::string_view kNames[] = {"neon", "sse41", "avx2", "avx512", "avx512_bf16", "amx"};

}  // namespace

Level parse_level(std::string_view name) {
  std::string all;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return Level(i);
    all += (i > 0 ? ", " : "") + std::string(kNames[i]);
  }
  throw ValueError("GRADUS_CPU", "expected one of ", all, ", got '", name.substr(0, 40), "'");
}

std::string_view name_of(Level level) { return kNames[size_t(level)]; }

Level processor_level() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return Level::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16")) return Level::kAvx512;
  unsigned a = 0, b = 0, c = 0, d = 0;
  // CPUID leaf 7, EDX bit 22: AMX-BF16.
  const bool has_amx_bf16 = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1);
  if (has_amx_bf16) return Level::kAmx;
  // On Intel's processors the bf16 dot product vdpbf16ps is slower than f32 FMA: Sapphire Rapids computes 30
  // products per ns with vdpbf16ps and 48 with vfmadd231ps. On AMD's processors vdpbf16ps is faster.
  return __builtin_cpu_is("intel") ? Level::kAvx512 : Level::kAvx512Bf16;
#else
  return Level::kNeon;
#endif
}

Level level() {
  static const Level used = [] {
    const char* name = std::getenv("GRADUS_CPU");
    const Level named = name && *name ? parse_level(name) : processor_level();
    // On x86, "neon" is a level of another architecture and ignored. On ARM, the minimum is always kNeon.
    return named == Level::kNeon ? processor_level() : std::min(named, processor_level());
  }();
  return used;
}

}  // namespace gradus::cpu
