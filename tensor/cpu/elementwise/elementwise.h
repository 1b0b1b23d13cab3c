// Runs an element-wise functor over broadcast, strided operands of any dtype. The loops over layouts and the
// conversions are compiled once; an op adds one small vectorized loop (its ChunkFunction) per element type.
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
// out = functor(inputs...) element by element, on all threads. Each input's shape broadcasts to out's; there are
// at most 3 inputs. `out` may be an input, but overlaps no input otherwise.
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
      bool any_needs_fallback = false;
      for (int64_t i = 0; i < n; ++i) any_needs_fallback |= f.needs_fallback(std::get<I>(x)[i]...);
      if (any_needs_fallback) {
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

}  // namespace gradus::cpu
