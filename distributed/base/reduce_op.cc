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

// Whether values of T are combined in f32.
template <class T> constexpr bool kIsWidened = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// Reduces `count` >= 1 inputs of n elements; divisor 1: no division.
template <class T, class Op>
void all_into(T* out, const void* const* inputs, int count, int64_t n, int divisor, Op op) {
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

// The same for 16-bit floats.
template <class T, class Op>
  requires kIsWidened<T>
void all_into(T* out, const void* const* inputs, int count, int64_t n, int divisor, Op op) {
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

void reduce_and_divide(void* out, const void* const* inputs, int count, int64_t n, DType dtype, ReduceOp op,
                       int divisor) {
  if (dtype == DType::kBool) {  // bytes that are 0 or 1
    dtype = DType::kU8;
    if (op == ReduceOp::kSum || op == ReduceOp::kMax) op = ReduceOp::kBor;
    if (op == ReduceOp::kProduct || op == ReduceOp::kMin) op = ReduceOp::kBand;
  }
  dispatch_all(dtype, [&]<class T>() {
    dispatch_op<std::conditional_t<kIsWidened<T>, float, T>>(
        op, [&](auto f) { all_into(static_cast<T*>(out), inputs, count, n, divisor, f); });
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
  dispatch_all(dtype, [&]<class T>() {
    T* const to = static_cast<T*>(out);
    const T* const from = static_cast<const T*>(in);
    if constexpr (kIsWidened<T>)
      for_blocks(n, [&](int64_t first, int64_t m) {
        float x[kBlock];
        load(x, from + first, m);
        for (int64_t i = 0; i < m; ++i) x[i] *= float(factor);
        store(to + first, x, m);
      });
    else if constexpr (std::is_floating_point_v<T>)
      for (int64_t i = 0; i < n; ++i) to[i] = from[i] * T(factor);
    else
      throw InternalError("premul_sum of ", name_of(dtype));
  });
}

}  // namespace gradus::dist
