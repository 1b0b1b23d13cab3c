// Defines the CPU kernels of functors (tensor/ops/functor.h): the kernel of Unary<F>, Binary<F> or Ternary<F> runs
// F on operands of any dtype and layout. A .cc file instantiates DefineSlots for each list of slots of its family.
#pragma once

#include "gradus/tensor/cpu/elementwise/elementwise.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"

namespace gradus::cpu {

// F on bf16 operands: computes in f32 and rounds the result once.
template <class F> struct OnBF16 {
  F f;
  template <class... In> bf16 operator()(In... x) const { return bf16(f(float(x)...)); }
};

// Memory-bound functors, which have a loop on bf16 arrays. Other functors convert bf16 to f32 in buffers.
template <class F, class... List> constexpr bool is_one_of = (std::is_same_v<F, List> || ...);
template <class F>
constexpr bool is_memory_bound =
    is_one_of<F, functors::Add, functors::Sub, functors::Mul, functors::AddScaled, functors::Maximum,
              functors::Minimum, functors::Relu, functors::ReluBackward, functors::LeakyRelu,
              functors::LeakyReluBackward>;

// out = f(inputs...), computed on arrays of types Out and T...
template <class Out, class... T, class F, class... In>
void run_functor(const F& f, const Tensor& out, const In&... inputs) {
  const Tensor* in[] = {&inputs...};
  run_elementwise({&elementwise_chunk<F, Out, T...>, &f, dtype_v<Out>, {dtype_v<T>...}}, out, in);
}

// Computes out = f(inputs...) on bf16 arrays if all tensors are bf16 and F is memory-bound. Returns whether it
// did.
template <class F, class... In> bool try_run_in_bf16(const F& f, const Tensor& out, const In&... inputs) {
  if constexpr (is_memory_bound<F>) {
    if (out.dtype() != DType::kBF16 || ((inputs.dtype() != DType::kBF16) || ...)) return false;
    run_functor<bf16, std::conditional_t<true, bf16, In>...>(OnBF16<F>{f}, out, inputs...);
    return true;
  }
  return false;
}

// Kernels: operands broadcast to out, which may be one of them; they are converted to the C++ type that F
// computes in, results to out's dtype.
template <class F> void unary(const Tensor& out, const Tensor& x, F f) {
  if (try_run_in_bf16(f, out, x)) return;
  raw::with_compute_type<F>("elementwise", raw::compute_type<F>(out, x),
                            [&]<class T>() { run_functor<decltype(f(T())), T>(f, out, x); });
}

template <class F> void binary(const Tensor& out, const Tensor& a, const Tensor& b, F f = {}) {
  if (try_run_in_bf16(f, out, a, b)) return;
  raw::with_compute_type<F>("elementwise", raw::compute_type<F>(out, a, b),
                            [&]<class T>() { run_functor<decltype(f(T(), T())), T, T>(f, out, a, b); });
}

template <class F>
void ternary(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c, F f = {}) {
  raw::with_compute_type<F>("elementwise", out.dtype(),
                            [&]<class T>() { run_functor<T, T, T, T>(f, out, a, b, c); });
}

}  // namespace gradus::cpu

namespace gradus::raw {

template <class F>
constinit KernelSlot<void(const Tensor&, const Tensor&, F)> Unary<F>::kernel{F::name, &cpu::unary<F>};
template <class F>
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, F)> Binary<F>::kernel{F::name,
                                                                                             &cpu::binary<F>};
template <class F>
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, F)> Ternary<F>::kernel{
    F::name, &cpu::ternary<F>};

template <class List> struct DefineSlots;
template <class... Slots> struct DefineSlots<SlotList<Slots...>> {
  static inline const void* const kernels[] = {&Slots::kernel...};  // each use instantiates a slot
};

}  // namespace gradus::raw
