// Runs an element-wise functor over broadcast, strided operands of any dtype. The loops over layouts and the
// conversions are compiled once; an op adds one small vectorized loop (its chunk function) per element type.
#pragma once

#include <array>
#include <span>
#include <tuple>
#include <type_traits>

#include "gradus/tensor/cpu/wide_vectors.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Computes n consecutive elements: out[i] = f(in[0][i], in[1][i], ...). `out` may be one of the inputs.
using ChunkFunction = void (*)(int64_t n, void* out, const void* const* in, const void* functor);

// A type-erased functor with the types it computes in.
struct ElementwiseCall {
  ChunkFunction chunk;
  const void* functor;
  DType out_type;  // types of chunk's arrays; operands of other dtypes are converted
  std::array<DType, 3> in_types;
};
// out = functor(inputs...) element by element. Each input's shape broadcasts to out's; there are at most 3 inputs.
void run_elementwise(const ElementwiseCall& call, const Tensor& out, std::span<const Tensor* const> inputs);

// A functor whose vectorized f32 formula is accurate only in a common range has `needs_fallback(x...)`, true for
// arguments outside that range, and `fallback(x...)`, the slower formula for these.
template <class F, class... In>
concept HasFallback = (std::is_same_v<In, float> && ...) && requires(const F& f, In... x) {
  f.needs_fallback(x...);
  f.fallback(x...);
};

// The ChunkFunction of functor F with these types.
template <class F, class Out, class... In>
void elementwise_chunk(int64_t n, void* out, const void* const* in, const void* functor) {
  const F f = *static_cast<const F*>(functor);
  [&]<size_t... I>(std::index_sequence<I...>) {
    Out* o = static_cast<Out*>(out);
    const std::tuple<const In*...> x{static_cast<const In*>(in[I])...};
    if constexpr (HasFallback<F, In...>) {
      const auto compute = [&](auto... v) { return f.needs_fallback(v...) ? f.fallback(v...) : f(v...); };
      bool any = false;
      for (int64_t i = 0; i < n; ++i) any |= f.needs_fallback(std::get<I>(x)[i]...);
      if (any) {
        for (int64_t i = 0; i < n; ++i) o[i] = compute(std::get<I>(x)[i]...);
        return;
      }
    }
    if (n == 1) {
      *o = f(*std::get<I>(x)...);
      return;
    }
    const auto loop = [&] {
      const F local = f;  // a local copy cannot alias the output
      // No loop-carried dependency: an input does not overlap the output, or is the output.
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = local(std::get<I>(x)[i]...);
    };
    if constexpr (std::is_same_v<Out, bf16>)
      with_wide_vectors(loop);
    else
      loop();
  }(std::index_sequence_for<In...>());
}

// Calls g.operator()<T>() with the C++ type in which F computes dtype t: f32 for 16-bit floats, i32 for i8 and
// i16, whose results are the low bits.
// Errors: DTypeError naming `op` if F does not accept T.
template <class F, class G> void with_compute_type(const char* op, DType t, G&& g) {
  auto call = [&]<class T>() {
    if constexpr (F::template accepts<T>)
      g.template operator()<T>();
    else
      throw DTypeError(op, "is not defined for ", name_of(t));
  };
  switch (t) {
    case DType::kF64:
      return call.template operator()<double>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return call.template operator()<float>();
    case DType::kI64:
      return call.template operator()<int64_t>();
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
      return call.template operator()<int32_t>();
    case DType::kU8:
      return call.template operator()<uint8_t>();
    case DType::kBool:
      return call.template operator()<bool>();
  }
}

}  // namespace gradus::cpu
