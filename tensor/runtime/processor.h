// What kernels may use of this processor: all that it has, or less, as GRADUS_CPU says.
#pragma once

#include <string_view>

namespace gradus::cpu {

// What a processor can do, each with all that is before it. The compiled code is for AVX2 at least, so that
// kSse41 holds back oneDNN alone. kAvx512 stands for its parts F, BW, DQ and VL together.
enum class Level { kSse41, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Returns the level of a name: sse41, avx2, avx512, avx512_bf16, amx.
// Errors: ValueError, which lists them.
Level parse_level(std::string_view name);
std::string_view name_of(Level level);

// Returns what the processor has.
Level processor_level();

// Returns what kernels use: what the processor has, or what the variable GRADUS_CPU names, if that is less.
// It is read once, when a kernel first asks.
// Errors: ValueError when it names no level.
Level level();

inline bool has_avx512() { return level() >= Level::kAvx512; }
// Pairs of bf16 are multiplied and both products added to an f32.
inline bool has_avx512_bf16() { return level() >= Level::kAvx512Bf16; }

}  // namespace gradus::cpu
