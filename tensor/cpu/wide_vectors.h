// Function multiversioning: with_wide_vectors(loop) compiles a loop for the baseline processor of the build and
// for AVX-512, and selects at run time.
#pragma once

#include "gradus/tensor/runtime/processor.h"

namespace gradus::cpu {

#if defined(__x86_64__)
#if defined(__clang__)
#define GRADUS_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), clang::min_vector_width(512)
#else
#define GRADUS_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

// `flatten` inlines all functions that f calls. A function that is not inlined would be compiled for the baseline
// processor.
template <class F> [[GRADUS_AVX512, gnu::flatten]] void run_in_avx512(const F& f) { f(); }
#endif

// Calls f(), compiled for AVX-512 with 64-byte vectors if the processor has AVX-512. Meant for loops that convert
// 16-bit floats: with 32-byte vectors their rounding takes as long as their memory accesses.
template <class F> void with_wide_vectors(const F& f) {
#if defined(__x86_64__)
  if (has_avx512()) return run_in_avx512(f);
#endif
  f();
}

}  // namespace gradus::cpu
