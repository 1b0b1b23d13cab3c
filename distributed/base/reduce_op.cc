// Element-wise reduction of the ranks' host buffers, the arithmetic of reduce, all_reduce and reduce_scatter.
// Values are combined from left to right in their own dtype; f16 and bf16 are combined in f32 and rounded
// once. A block of 1024 elements is finished before the next, so that partial results stay in the L1 cache.
// Callers have checked op and dtype with check_reduce_op.
#include "gradus/distributed/base/reduce_op.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <type_traits>

#include "gradus/tensor/cpu/half.h"

namespace gradus::dist {
namespace {

constexpr int64_t kBlock = 1024;  // elements

// Signed results wrap around, as in tensor ops. Narrow types are widened: a product of u16 overflows int.
template <class T> auto wrapping(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<std::make_unsigned_t<decltype(x + 0)>>(x);
  else
    return x;
}

struct Sum {
  template <class T> T operator()(T a, T b) const { return T(wrapping(a) + wrapping(b)); }
};
struct Product {
  template <class T> T operator()(T a, T b) const { return T(wrapping(a) * wrapping(b)); }
};
// Min and Max return NaN if an operand is NaN.
struct Min {
  template <class T> T operator()(T a, T b) const {
    const T r = a < b ? a : b;
    return a != a ? a : r;
  }
};
struct Max {
  template <class T> T operator()(T a, T b) const {
    const T r = a > b ? a : b;
    return a != a ? a : r;
  }
};
// Calls f(function object) for the op on values of T.
template <class T, class F> void dispatch_op(ReduceOp op, F&& f) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return f(Sum());
    case ReduceOp::kProduct:
      return f(Product());
    case ReduceOp::kMin:
      return f(Min());
    case ReduceOp::kMax:
      return f(Max());
    case ReduceOp::kBand:
      if constexpr (std::is_integral_v<T>) return f(std::bit_and<>());
      break;
    case ReduceOp::kBor:
      if constexpr (std::is_integral_v<T>) return f(std::bit_or<>());
      break;
    case ReduceOp::kBxor:
      if constexpr (std::is_integral_v<T>) return f(std::bit_xor<>());
      break;
    case ReduceOp::kPremulSum:  // callers multiply, and then sum
      break;
  }
  throw InternalError("reduction ", name_of(op), " of this dtype");
}

// Sets out[i] = op(a[i], b[i]). out may be a or b.
template <class T, class Op> void combine(T* out, const T* a, const T* b, int64_t n, Op op) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = T(op(a[i], b[i]));
}
// Divides in place; integers truncate toward zero.
template <class T> void divide(T* x, int64_t n, int size) {
  // An i8 or u8 does not hold every size.
  const auto divisor = static_cast<std::conditional_t<std::is_integral_v<T>, int64_t, T>>(size);
  for (int64_t i = 0; i < n; ++i) x[i] = T(x[i] / divisor);
}

void load(float* to, const bf16* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = float(from[i]);
}
void store(bf16* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = bf16(from[i]);
}
void load(float* to, const f16* from, int64_t n) { cpu::to_floats(to, from, n); }
void store(f16* to, const float* from, int64_t n) { cpu::to_f16(to, from, n); }

// Calls f(first, count) on consecutive blocks of [0, n).
template <class F> void for_blocks(int64_t n, F&& f) {
  for (int64_t first = 0; first < n; first += kBlock) f(first, std::min(kBlock, n - first));
}

// Reduces values in their own type. all_into: `count` >= 1 inputs of n elements; divisor 1: no division.
template <class T> struct Plain {
  template <class Op>
  static void all_into(T* out, const void* const* inputs, int count, int64_t n, int divisor, Op op) {
    const auto input = [&](int i) { return static_cast<const T*>(inputs[i]); };
    if (count == 1) {
      if (n > 0 && out != input(0)) std::memcpy(out, input(0), n * sizeof(T));
      if (divisor != 1) divide(out, n, divisor);
      return;
    }
    for_blocks(n, [&](int64_t first, int64_t m) {
      T partial[kBlock];  // not `out`, which may be an input that is still to come
      const T* sum = input(0) + first;
      for (int i = 1; i < count - 1; ++i) {
        combine(partial, sum, input(i) + first, m, op);
        sum = partial;
      }
      combine(out + first, sum, input(count - 1) + first, m, op);
      if (divisor != 1) divide(out + first, m, divisor);
    });
  }
};

// Reduces 16-bit floats in f32.
template <class T> struct Widened {
  template <class Op>
  static void all_into(T* out, const void* const* inputs, int count, int64_t n, int divisor, Op op) {
    for_blocks(n, [&](int64_t first, int64_t m) {
      float sum[kBlock], x[kBlock];
      load(sum, static_cast<const T*>(inputs[0]) + first, m);
      for (int i = 1; i < count; ++i) {
        load(x, static_cast<const T*>(inputs[i]) + first, m);
        combine(sum, sum, x, m, op);
      }
      if (divisor != 1) divide(sum, m, divisor);
      store(out + first, sum, m);
    });
  }
};

// Calls f.operator()<T, Reduction, Value>(op). T is how values of `dtype` are stored, Reduction reduces them,
// and Value is the type of the arithmetic.
template <class F> void dispatch_reduction(DType dtype, ReduceOp op, F&& f) {
  switch (dtype) {
    case DType::kF16:
      return f.template operator()<f16, Widened<f16>, float>(op);
    case DType::kBF16:
      return f.template operator()<bf16, Widened<bf16>, float>(op);
    case DType::kF64:
      return f.template operator()<double, Plain<double>, double>(op);
    case DType::kF32:
      return f.template operator()<float, Plain<float>, float>(op);
    case DType::kI64:
      return f.template operator()<int64_t, Plain<int64_t>, int64_t>(op);
    case DType::kI32:
      return f.template operator()<int32_t, Plain<int32_t>, int32_t>(op);
    case DType::kI16:
      return f.template operator()<int16_t, Plain<int16_t>, int16_t>(op);
    case DType::kI8:
      return f.template operator()<int8_t, Plain<int8_t>, int8_t>(op);
    case DType::kU8:
      return f.template operator()<uint8_t, Plain<uint8_t>, uint8_t>(op);
    case DType::kBool:  // bytes that are 0 or 1
      if (op == ReduceOp::kSum || op == ReduceOp::kMax) op = ReduceOp::kBor;
      if (op == ReduceOp::kProduct || op == ReduceOp::kMin) op = ReduceOp::kBand;
      return f.template operator()<uint8_t, Plain<uint8_t>, uint8_t>(op);
  }
  throw InternalError("reduction of unknown dtype ", int(dtype));
}

void reduce_and_divide(void* out, const void* const* inputs, int count, int64_t n, DType dtype, ReduceOp op,
                       int divisor) {
  dispatch_reduction(dtype, op, [&]<class T, class Reduction, class Value>(ReduceOp op) {
    dispatch_op<Value>(
        op, [&](auto f) { Reduction::all_into(static_cast<T*>(out), inputs, count, n, divisor, f); });
  });
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum",  "product", "min",  "max",       "avg",
                                         "band", "bor",     "bxor", "premul_sum"};
  const size_t index = static_cast<size_t>(op);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

void check_reduce_op(std::string_view op_name, ReduceOp op, DType dtype) {
  if (op == ReduceOp::kPremulSum)
    throw ValueError(op_name, "premul_sum needs its factor: {.op = dist::premul_sum(factor)}");
  if (op >= ReduceOp::kBand && is_floating(dtype))
    throw DTypeError(op_name, name_of(op), " is for integers and bool, got ", name_of(dtype));
  if (op == ReduceOp::kAvg && dtype == DType::kBool)
    throw DTypeError(op_name, "avg is for numbers, got bool");
}

void reduce_all_into(void* out, const void* const* inputs, int count, int64_t n, DType dtype, ReduceOp op) {
  reduce_and_divide(out, inputs, count, n, dtype, op, op == ReduceOp::kAvg ? count : 1);
}

void finish_reduce(void* x, int64_t n, DType dtype, ReduceOp op, int size) {
  if (op == ReduceOp::kAvg) reduce_and_divide(x, &x, 1, n, dtype, op, size);
}

void scale_into(void* out, const void* in, int64_t n, DType dtype, double factor) {
  const auto plain = [&]<class T>(T* to, const T* from) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] * T(factor);
  };
  const auto widened = [&]<class T>(T* to, const T* from) {
    for_blocks(n, [&](int64_t first, int64_t m) {
      float x[kBlock];
      load(x, from + first, m);
      for (int64_t i = 0; i < m; ++i) x[i] *= float(factor);
      store(to + first, x, m);
    });
  };
  switch (dtype) {
    case DType::kF64:
      return plain(static_cast<double*>(out), static_cast<const double*>(in));
    case DType::kF32:
      return plain(static_cast<float*>(out), static_cast<const float*>(in));
    case DType::kF16:
      return widened(static_cast<f16*>(out), static_cast<const f16*>(in));
    case DType::kBF16:
      return widened(static_cast<bf16*>(out), static_cast<const bf16*>(in));
    default:
      throw InternalError("premul_sum of ", name_of(dtype));
  }
}

}  // namespace gradus::dist
