// Control of denormal (subnormal) floats: nonzero values below 1.2e-38 in f32. An x86 instruction with such
// an operand or result takes about 150 cycles, unless the processor is set to flush denormals to 0.
#pragma once

#include <utility>

namespace gradus {

// Sets whether CPU ops that the calling thread calls flush denormals, as torch.set_flush_denormal; the default is
// false. Matrix products, attention, convolutions, norms and optimizer steps always flush
// them. Returns whether this
// processor supports it: x86 does.
bool set_flush_denormal(bool flush);

namespace internal {

// The flush-to-zero and denormals-are-zero bits of the calling thread's control register (MXCSR). On ARM always 0.
unsigned denormal_mode();
void set_denormal_mode(unsigned bits);

// Makes the calling thread, which must also destroy the object, flush denormals for the object's lifetime.
class FlushDenormals {
 public:
  FlushDenormals() : before_(denormal_mode()) { set_flush_denormal(true); }
  ~FlushDenormals() { set_denormal_mode(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const unsigned before_;
};

}  // namespace internal

namespace cpu {

template <auto kernel> struct Flushing;
template <class... Args, void (*kernel)(Args...)> struct Flushing<kernel> {
  static void run(Args... args) {
    const internal::FlushDenormals flush;
    kernel(std::forward<Args>(args)...);
  }
};
// Wraps a kernel in FlushDenormals: flushing<&matmul_cpu> is a function pointer of matmul_cpu's type.
template <auto kernel> inline constexpr auto flushing = &Flushing<kernel>::run;

}  // namespace cpu
}  // namespace gradus
