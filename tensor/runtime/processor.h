// The instruction set that kernels use: the highest that the processor supports, or a lower one set by the
// environment variable GRADUS_CPU.
#pragma once

#include <string_view>

namespace gradus::cpu {

// Instruction set levels. kNeon is the only level of ARM. The others are those of x86, each including the previous
// ones. Gradus is compiled for AVX2 at least, so kSse41 limits only oneDNN. kAvx512 is AVX-512 F, BW, DQ and VL.
enum class Level { kNeon, kSse41, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Parses neon, sse41, avx2, avx512, avx512_bf16 or amx.
// Errors: ValueError with the list of names.
Level parse_level(std::string_view name);
std::string_view name_of(Level level);

// Returns the highest level that this processor supports.
Level processor_level();

// Returns the level that kernels use: the minimum of processor_level() and GRADUS_CPU. GRADUS_CPU is ignored if it
// names a level of another architecture; it is read once.
// Errors: ValueError if GRADUS_CPU is not a level.
Level level();

inline bool has_avx512() { return level() >= Level::kAvx512; }
// Returns whether kernels use AVX512_BF16 (vdpbf16ps: dot products of bf16 pairs, accumulated in f32).
inline bool has_avx512_bf16() { return level() >= Level::kAvx512Bf16; }

}  // namespace gradus::cpu
