// Registers the CUDA kernels of element-wise ops. Each functor, such as functors::Exp, has a KernelSlot: a table
// of one function pointer per device type, which raw::unary, binary and ternary (tensor/ops/elementwise.h) call
// with an allocated output. fill_slots sets the CUDA pointers of a list of slots when the program starts.
#pragma once

#include <type_traits>

#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/ops/elementwise.h"

namespace gradus::cuda {

// out = f(in...), element by element. The inputs broadcast to the shape of `out`; any strides. All tensors are on
// one CUDA device, at most kMaxOperands with `out`; an input may be `out` itself. f computes in the type T that
// compute_type chooses from the dtypes. The kernel is queued on the device's current stream.
// Errors: DTypeError if F does not accept T.
template <class F, class... In> void launch_elementwise(const F& f, const Tensor& out, const In&... in) {
  if (out.numel() == 0) return;
  raw::with_compute_type<F>(F::name, raw::compute_type<F>(out, in...), [&]<class T>() {
    using Out = decltype(f((void(in), T())...));
    const ElementwiseArgs o = operands_of({&out, &in...});
    elementwise<T, Out, std::conditional_t<true, T, In>...>(F::name, f, o.index, o.views.data(), o.stream);
  });
}

// OnCuda<Slot>::run is the kernel for the slot of functors with 1, 2 or 3 operands.
template <class Slot> struct OnCuda;
template <class F> struct OnCuda<raw::Unary<F>> {
  static void run(const Tensor& out, const Tensor& x, F f) { launch_elementwise(f, out, x); }
};
template <class F> struct OnCuda<raw::Binary<F>> {
  static void run(const Tensor& out, const Tensor& a, const Tensor& b, F f) {
    launch_elementwise(f, out, a, b);
  }
};
template <class F> struct OnCuda<raw::Ternary<F>> {
  static void run(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c, F f) {
    launch_elementwise(f, out, a, b, c);
  }
};

// Sets the CUDA kernels of the slots. Returns true, for the initializer of a static variable.
template <class... Slots> bool fill_slots(raw::SlotList<Slots...>) {
  ((Slots::kernel.cuda = &OnCuda<Slots>::run), ...);
  return true;
}

}  // namespace gradus::cuda
