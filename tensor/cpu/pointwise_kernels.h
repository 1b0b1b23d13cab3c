// Turns a functor into a kernel for its slot.
#pragma once

#include "gradus/tensor/cpu/pointwise.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/elementwise_functors.h"

namespace gradus::cpu {

// The type to compute in: a predicate's operands decide it, else the result does.
template <class F, class... In>
DType compute_type(const Tensor& out, const In&... in) {
  if constexpr (!F::template accepts<float> && !F::template accepts<int64_t>)
    return DType::kBool;
  else if constexpr (sizeof...(In) <= 2 && std::is_same_v<decltype(F{}((void(in), 0.f)...)), bool>)
    return raw::result_dtype(in...);
  else
    return out.dtype();
}

template <class F, class... P>
void unary(const Tensor& out, const Tensor& x, P... parameters) {
  const F f{{}, parameters...};
  with_compute_type<F>("elementwise", compute_type<F>(out, x), [&]<class T>() {
    using Out = decltype(f(T()));
    const Tensor* in[] = {&x};
    run_pointwise({&pointwise_chunk<F, Out, T>, &f, dtype_v<Out>, {dtype_v<T>}}, out, in);
  });
}

template <class F, class... P>
void binary(const Tensor& out, const Tensor& a, const Tensor& b, P... parameters) {
  const F f{{}, parameters...};
  with_compute_type<F>("elementwise", compute_type<F>(out, a, b), [&]<class T>() {
    using Out = decltype(f(T(), T()));
    const Tensor* in[] = {&a, &b};
    run_pointwise({&pointwise_chunk<F, Out, T, T>, &f, dtype_v<Out>, {dtype_v<T>, dtype_v<T>}}, out, in);
  });
}

template <class F, class... P>
void ternary(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c, P... parameters) {
  const F f{{}, parameters...};
  with_compute_type<F>("elementwise", out.dtype(), [&]<class T>() {
    const Tensor* in[] = {&a, &b, &c};
    run_pointwise({&pointwise_chunk<F, T, T, T, T>, &f, dtype_v<T>, {dtype_v<T>, dtype_v<T>, dtype_v<T>}},
                  out, in);
  });
}

}  // namespace gradus::cpu
