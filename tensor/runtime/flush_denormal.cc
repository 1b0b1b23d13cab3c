// Reads and sets the two denormal bits of MXCSR, the control register of SSE and AVX arithmetic of the
// calling thread. Other architectures have no-ops.
#include "gradus/tensor/runtime/flush_denormal.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gradus {
#if defined(__x86_64__)

// Bits of MXCSR: FTZ (denormal results become 0) and DAZ (denormal operands are 0).
constexpr unsigned kFlushResults = 1u << 15, kFlushOperands = 1u << 6;
constexpr unsigned kFlush = kFlushResults | kFlushOperands;

unsigned internal::denormal_mode() { return _mm_getcsr() & kFlush; }

void internal::set_denormal_mode(unsigned bits) {
  const unsigned all = _mm_getcsr();
  if ((all & kFlush) != bits) _mm_setcsr((all & ~kFlush) | bits);
}

bool set_flush_denormal(bool flush) {
  internal::set_denormal_mode(flush ? kFlush : 0);
  return true;
}

#else
unsigned internal::denormal_mode() { return 0; }
void internal::set_denormal_mode(unsigned) {}
bool set_flush_denormal(bool) { return false; }
#endif

}  // namespace gradus
