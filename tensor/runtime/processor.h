// The instruction sets that kernels may use: all that this processor has, or fewer, as GRADUS_CPU says.
#pragma once

#include <string_view>

namespace gradus::cpu {

// Levels of instruction sets. kNeon is the one level of ARM. The others are those of x86, and each includes
// all before it. The code of Gradus is compiled for AVX2 at least, so kSse41 limits oneDNN alone. kAvx512
// stands for F, BW, DQ and VL together.
enum class Level { kNeon, kSse41, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Returns the level of a name: neon, sse41, avx2, avx512, avx512_bf16 or amx.
// Errors: ValueError listing the names.
Level parse_level(std::string_view name);
std::string_view name_of(Level level);

// Returns this processor's level.
Level processor_level();

// Returns the level that kernels use: the processor's, or the one that the variable GRADUS_CPU names, if that
// is lower and of the same kind of processor. The variable is read once, when a kernel first asks.
// Errors: ValueError when GRADUS_CPU names no level.
Level level();

inline bool has_avx512() { return level() >= Level::kAvx512; }
// Returns whether there are instructions that multiply pairs of bf16 and add both products to an f32.
inline bool has_avx512_bf16() { return level() >= Level::kAvx512Bf16; }

}  // namespace gradus::cpu
