// Dynamic dispatch with Highway: a kernel is written once, compiled for each instruction set (AVX2 and AVX-512, or
// NEON), and selected at run time. Such a file is included by foreach_target.h once per instruction set:
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "tensor/cpu/conv/winograd.cc"
//   #include "gradus/tensor/cpu/levels.h"
//
//   #include <hwy/foreach_target.h>
//
//   #include "gradus/tensor/cpu/conv/tiles-inl.h"  // also compiled per instruction set
//
//   HWY_BEFORE_NAMESPACE();
//   namespace gradus::cpu::HWY_NAMESPACE { ... the kernels ... }
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace gradus { ... callers: GRADUS_DISPATCH(kernel)(arguments) ... }
//   #endif
#pragma once

#include "gradus/tensor/runtime/processor.h"

#if defined(__x86_64__)
// 0xff disables the Highway targets below 1 << 8, which are extensions of AVX-512 (AVX3).
#define HWY_BASELINE_TARGETS HWY_AVX2
#define HWY_DISABLED_TARGETS 0xff
// Pointer to gradus::cpu::HWY_NAMESPACE::f for the instruction set of this processor.
#define GRADUS_DISPATCH(f) \
  (::gradus::cpu::has_avx512() ? &::gradus::cpu::N_AVX3::f : &::gradus::cpu::N_AVX2::f)
#else
// SVE is not used: its vectors have no size at compile time, so arrays cannot hold them. Processors with SVE have
// NEON.
#define HWY_BASELINE_TARGETS HWY_NEON
#define HWY_COMPILE_ONLY_STATIC
#define GRADUS_DISPATCH(f) (&::gradus::cpu::N_NEON::f)
#endif
