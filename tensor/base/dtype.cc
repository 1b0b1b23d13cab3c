// The process-wide default dtype, conversion of f16 for compilers without a 16-bit float type, and type promotion.
// A compiler with such a type (g++) compiles this file.
#include "gradus/tensor/base/dtype.h"

#include <atomic>
#include <ostream>

namespace gradus {
namespace {

constinit std::atomic<DType> default_dtype = DType::kF32;

}  // namespace

DType get_default_dtype() { return default_dtype.load(std::memory_order_relaxed); }
void set_default_dtype(DType t) {
  if (!is_floating(t)) throw DTypeError("set_default_dtype", "expected f64, f32, f16 or bf16, got ", t);
  default_dtype.store(t, std::memory_order_relaxed);
}

uint16_t internal::float_to_half(float f) { return std::bit_cast<uint16_t>(static_cast<Half>(f)); }
float internal::half_to_float(uint16_t half) { return static_cast<float>(std::bit_cast<Half>(half)); }

std::ostream& operator<<(std::ostream& out, DType t) { return out << name_of(t); }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) {
    // Neither of f16 and bf16 can represent all values of the other; f32 can represent both.
    if (size_of(a) == 2 && size_of(b) == 2) return DType::kF32;
    return a < b ? a : b;
  }
  // i16 is the smallest dtype that can represent both.
  if ((a == DType::kI8 && b == DType::kU8) || (a == DType::kU8 && b == DType::kI8)) return DType::kI16;
  // Enumerators of a kind are ordered from wide to narrow. u8 follows the signed integers, bool is last.
  return a < b ? a : b;
}

}  // namespace gradus
