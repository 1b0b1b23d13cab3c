// Loops that are compiled twice: for the processor that the build is for, and for AVX-512.
#pragma once

#include "gradus/tensor/runtime/processor.h"

namespace gradus::cpu {

#if defined(__x86_64__)
// What f calls is compiled into it, for a function of its own would be for the build's processor.
template <class F>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"), gnu::flatten]] void
run_in_avx512(const F& f) {
  f();
}
#endif

// Calls f(), whose loops the compiler has turned into code for vectors of 64 bytes as well. For loops that
// convert 16-bit floats: their rounding takes as long as memory does, in vectors of 32 bytes.
template <class F>
void with_wide_vectors(const F& f) {
#if defined(__x86_64__)
  if (has_avx512()) return run_in_avx512(f);
#endif
  f();
}

}  // namespace gradus::cpu
