// Runs a functor (tensor/ops/functor.h) over the elements of operands that broadcast. Two kernels compute it:
//
// * dense: each input has the output's layout without gaps, or is one element that is broadcast. Threads read
//   and write vectors of 16 bytes of the largest element type, for some functors 8 bytes. Element types are
//   template parameters: f64, f32, bf16, f16.
// * strided: all other layouts and dtypes. One kernel per functor and compute type; dtypes at run time.
//
// Both kernels evaluate the same functor, so a result has the same bits in both.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/strided.h"
#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {
namespace elementwise_detail {

inline constexpr int kThreads = 256;
inline constexpr int kStridedEach = 4;  // elements per thread of the strided kernel
inline constexpr int kDenseEach = 2;    // vectors per thread of the dense kernel

// Whether F::kHalfVectors (tensor/ops/functor.h) contains the type of the result.
template <class F, class Out> constexpr bool takes_half_vectors() {
  if constexpr (requires { F::kHalfVectors; })
    for (const DType dtype : F::kHalfVectors)
      if (dtype == dtype_v<Out>) return true;
  return false;
}

// Number of elements of a vector.
template <class F, class Out, class... In>
constexpr int vector_size =
    (takes_half_vectors<F, Out>() ? 8 : 16) / static_cast<int>(std::max({sizeof(Out), sizeof(In)...}));

// An input of the dense kernel: elements of type T in the output's order, or one element of any dtype.
struct DenseInput {
  const void* data;
  DType dtype;
  bool is_scalar;
};

// Returns f(x...). A functor may have a fast formula for most f32 arguments: needs_fallback() says for which
// arguments fallback() computes the result instead.
template <class F, class... C> __device__ __forceinline__ auto evaluate(const F& f, C... x) {
  if constexpr ((std::is_same_v<C, float> && ...) && requires { f.needs_fallback(x...); })
    return f.needs_fallback(x...) ? f.fallback(x...) : f(x...);
  else
    return f(x...);
}

// out[i] = f(in_0[i], in_1[i], ...) for i < count; an input that is one element is in_k[0]. Vector e of
// thread t in block b begins at element ((b * each + e) * kThreads + t) * n. A thread loads all its vectors
// before its first store, so `out` may be one of the inputs. The last block loops over the rest.
template <class F, int each, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    dense(F f, Out* out, int64_t count, std::array<DenseInput, sizeof...(In)> in) {
  constexpr int n = vector_size<F, Out, In...>;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = int64_t{blockIdx.x} * (kThreads * each * n);
  const auto run = [&]<size_t... I>(std::index_sequence<I...>) {
    // A broadcast element is not rounded to the 16-bit type of the other operands.
    const std::tuple<compute_t<In>...> scalars{
        in[I].is_scalar ? load_as<compute_t<In>>(in[I].data, in[I].dtype, 0) : compute_t<In>()...};
    const auto load = [&](int64_t at, int64_t left) {
      return std::tuple<Vector<In, n>...>{
          in[I].is_scalar ? Vector<In, n>{}
                          : load_first<n>(static_cast<const In*>(in[I].data) + at, left)...};
    };
    const auto computed = [&](const std::tuple<Vector<In, n>...>& v) {
      Vector<Out, n> out;
#pragma unroll
      for (int i = 0; i < n; ++i)
        out.v[i] = convert<Out>(
            evaluate(f, (in[I].is_scalar ? std::get<I>(scalars) : widen(std::get<I>(v).v[i]))...));
      return out;
    };
    if (begin + kThreads * each * n <= count) {
      std::tuple<Vector<In, n>...> loaded[each];
#pragma unroll
      for (int e = 0; e < each; ++e) loaded[e] = load(begin + (thread + e * kThreads) * n, n);
#pragma unroll
      for (int e = 0; e < each; ++e) store(out + begin + (thread + e * kThreads) * n, computed(loaded[e]));
      return;
    }
#pragma unroll 1
    for (int64_t at = begin + thread * n; at < count; at += kThreads * n) {
      const int64_t left = count - at;
      store_first(out + at, computed(load(at, left)), left);
    }
  };
  run(std::index_sequence_for<In...>());
}

// out[i] = f(in_0[i], in_1[i], ...) for positions i of the index space; each operand has its own strides.
// Thread t of block b computes positions (b * kStridedEach + e) * kThreads + t, e < kStridedEach.
template <class F, class... In>
__global__ void __launch_bounds__(kThreads) strided(F f, StridedOperands<1 + sizeof...(In)> o) {
  const uint32_t first = blockIdx.x * (kThreads * kStridedEach) + threadIdx.x;
  const auto run = [&]<size_t... I>(std::index_sequence<I...>) {
#pragma unroll
    for (int e = 0; e < kStridedEach; ++e) {
      const uint32_t i = first + static_cast<uint32_t>(e * kThreads);
      if (i >= o.count) return;
      int64_t at[1 + sizeof...(In)];
      o.locate(i, at);
      store_as(o.data[0], o.dtype[0], at[0],
               evaluate(f, load_as<In>(o.data[1 + I], o.dtype[1 + I], at[1 + I])...));
    }
  };
  run(std::index_sequence_for<In...>());
}

// Whether an array of this dtype can be read as elements of T. Bytes are bools, too.
template <class T> bool is_stored_as(DType dtype) {
  if constexpr (std::is_same_v<T, uint8_t> || std::is_same_v<T, bool>)
    return dtype == DType::kU8 || dtype == DType::kBool;
  return dtype == dtype_v<T>;
}

// The type in memory of an operand whose functor type is X: S for the compute type C, else X itself.
template <class S, class C, class X> using Stored = std::conditional_t<std::is_same_v<X, C>, S, X>;

// Launches the dense kernel with elements stored as S if dtypes, strides and alignments allow it. Returns
// whether it did.
template <class S, class F, class C, class OutC, class... InC>
bool run_dense(const char* op, const F& f, const StridedIndex& index, const View* views,
               cudaStream_t stream) {
  using Out = Stored<S, C, OutC>;
  constexpr int n = vector_size<F, Out, Stored<S, C, InC>...>;
  if (index.dims != 1 || (index.stride[0][0] != 1 && index.numel != 1) || !is_stored_as<Out>(views[0].dtype))
    return false;
  if (!is_aligned(views[0].data, n * sizeof(Out))) return false;
  std::array<DenseInput, sizeof...(InC)> in;
  bool fits = true;
  const auto take = [&]<class T>(size_t k, T*) {
    const View& v = views[k + 1];
    const bool is_scalar = index.stride[k + 1][0] == 0 && index.numel != 1;
    in[k] = {v.data, v.dtype, is_scalar};
    fits = fits && (is_scalar || (index.numel != 1 && index.stride[k + 1][0] != 1
                                      ? false
                                      : is_stored_as<T>(v.dtype) && is_aligned(v.data, n * sizeof(T))));
  };
  size_t k = 0;
  (take(k++, static_cast<Stored<S, C, InC>*>(nullptr)), ...);
  if (!fits) return false;
  const int64_t blocks = blocks_for(index.numel, int64_t(kThreads) * kDenseEach * n);
  launch(op, dense<F, kDenseEach, Out, Stored<S, C, InC>...>, {blocks, kThreads}, stream, f,
         static_cast<Out*>(views[0].data), index.numel, in);
  return true;
}

}  // namespace elementwise_detail

// Computes views[0] = f(views[1], ...) on the stream. `index` has the sizes and strides of the index space
// for all views, the output first. C is the type to compute in; OutC and InC are those of the functor's
// result and operands. An input may be the output itself, with equal strides.
template <class C, class OutC, class... InC, class F>
void elementwise(const char* op, const F& f, const StridedIndex& index, const View* views,
                 cudaStream_t stream) {
  using namespace elementwise_detail;  // NOLINT
  if (index.numel == 0) return;
  const auto dense = [&]<class... S>(std::tuple<S...>*) {
    return (run_dense<S, F, C, OutC, InC...>(op, f, index, views, stream) || ...);
  };
  if constexpr (std::is_same_v<C, float>) {
    if (dense(static_cast<std::tuple<float, bf16, f16>*>(nullptr))) return;
  } else if constexpr (std::is_same_v<C, double>) {
    if (dense(static_cast<std::tuple<double>*>(nullptr))) return;
  }
  for_each_part(index, kMaxDividend, {}, [&](const StridedIndex& part, const auto& offsets) {
    const auto operands = strided_operands<1 + static_cast<int>(sizeof...(InC))>(part, views, offsets);
    launch(op, strided<F, InC...>, {blocks_for(part.numel, kThreads * kStridedEach), kThreads}, stream, f,
           operands);
  });
}

}  // namespace gradus::cuda
