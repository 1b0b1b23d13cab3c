// Loops that are compiled twice: for the processor of the build, and for AVX-512.
#pragma once

#include "gradus/tensor/runtime/processor.h"

namespace gradus::cpu {

#if defined(__x86_64__)
#if defined(__clang__)
#define GRADUS_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), clang::min_vector_width(512)
#else
#define GRADUS_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

// `flatten` compiles the functions that f calls into this one. A function of its own would be compiled for
// the processor of the build.
template <class F> [[GRADUS_AVX512, gnu::flatten]] void run_in_avx512(const F& f) { f(); }
#endif

// Calls f(). Its loops exist for vectors of 64 bytes as well, which run where the processor has
// AVX-512. For loops that convert 16-bit floats: in vectors of 32 bytes their rounding takes as long as
// the memory accesses.
template <class F> void with_wide_vectors(const F& f) {
#if defined(__x86_64__)
  if (has_avx512()) return run_in_avx512(f);
#endif
  f();
}

}  // namespace gradus::cpu
