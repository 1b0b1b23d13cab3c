// Kernels that are written once and compiled for each level of processor, with the library Highway. Such a
// file includes itself, once for each level:
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "tensor/cpu/conv/winograd.cc"
//   #include "gradus/tensor/cpu/levels.h"
//
//   #include <hwy/foreach_target.h>
//
//   #include "gradus/tensor/cpu/conv/tiles-inl.h"  // a header that is compiled for each level too
//
//   HWY_BEFORE_NAMESPACE();
//   namespace gradus::cpu::HWY_NAMESPACE { ... the kernels ... }
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace gradus { ... what calls GRADUS_LEVEL(kernel)(arguments) ... }
//   #endif
#pragma once

#include "gradus/tensor/runtime/processor.h"

#if defined(__x86_64__)
// The levels are AVX2 and AVX-512, whose extensions Highway counts as levels below 1 << 8.
#define HWY_BASELINE_TARGETS HWY_AVX2
#define HWY_DISABLED_TARGETS 0xff
// The function gradus::cpu::HWY_NAMESPACE::f of this processor's level.
#define GRADUS_LEVEL(f) (::gradus::cpu::has_avx512() ? &::gradus::cpu::N_AVX3::f : &::gradus::cpu::N_AVX2::f)
#else
// The level is NEON. Registers of SVE have no size that the compiler knows, so that arrays cannot hold them.
// Processors with SVE have NEON too.
#define HWY_BASELINE_TARGETS HWY_NEON
#define HWY_COMPILE_ONLY_STATIC
#define GRADUS_LEVEL(f) (&::gradus::cpu::N_NEON::f)
#endif
