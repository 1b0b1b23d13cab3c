// Fills the slots of element-wise ops (tensor/ops/elementwise.h) for CUDA.
#pragma once

#include <type_traits>

#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/ops/elementwise.h"

namespace gradus::cuda {

// The kernel of a functor of any number of operands of one type.
template <class F, class... In> void compute(const F& f, const Tensor& out, const In&... in) {
  if (out.numel() == 0) return;
  raw::with_compute_type<F>(F::name, raw::compute_type<F>(out, in...), [&]<class T>() {
    using Out = decltype(f((void(in), T())...));
    const Operands o = operands_of({&out, &in...});
    elementwise<T, Out, std::conditional_t<true, T, In>...>(F::name, f, o.index, o.views.data(), o.stream);
  });
}

template <class Slot> struct OnCuda;
template <class F> struct OnCuda<raw::Unary<F>> {
  static void run(const Tensor& out, const Tensor& x, F f) { compute(f, out, x); }
};
template <class F> struct OnCuda<raw::Binary<F>> {
  static void run(const Tensor& out, const Tensor& a, const Tensor& b, F f) { compute(f, out, a, b); }
};
template <class F> struct OnCuda<raw::Ternary<F>> {
  static void run(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c, F f) {
    compute(f, out, a, b, c);
  }
};

template <class... Slots> bool fill_slots(raw::SlotList<Slots...>) {
  ((Slots::kernel.cuda = &OnCuda<Slots>::run), ...);
  return true;
}

}  // namespace gradus::cuda
