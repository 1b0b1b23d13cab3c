// Denormal numbers: nonzero ones below 1.2e-38 in f32. x86 takes some 150 cycles for an instruction that meets
// one, unless it flushes them: takes denormal operands, and results, for 0.
#pragma once

#include <utility>

namespace gradus {

// Sets whether ops on the CPU flush denormals where the calling thread calls them, as torch.set_flush_denormal
// does. The default is not to. Matrix products, convolutions, norms and steps of optimizers flush them either
// way. Returns whether this processor can flush them: x86 can.
bool set_flush_denormal(bool flush);

namespace internal {

// The bits of the calling thread's control register that say what becomes of denormals. On ARM there are none.
unsigned denormal_mode();
void set_denormal_mode(unsigned bits);

// The calling thread flushes denormals while this object exists.
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
// A kernel that flushes denormals: flushing<&matmul_cpu> has matmul_cpu's type.
template <auto kernel> inline constexpr auto flushing = &Flushing<kernel>::run;

}  // namespace cpu
}  // namespace gradus
