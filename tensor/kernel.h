// Kernel slots: how an op finds the code that computes it. Each op has one slot. The slot is declared
// beside the op and defined with the op's kernel for the CPU, so a program that links the op links this
// kernel and no other:
//
//   // tensor/ops/softmax.h      in namespace raw
//   extern KernelSlot<void(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log)>
//       softmax_kernel;
//   // tensor/cpu/softmax.cc     constinit decltype(softmax_kernel) softmax_kernel{"softmax", &softmax_cpu};
//   // tensor/ops/softmax.cc     softmax_kernel(y, x, n, inner, log);
//
// The slot of an element-wise op is found by its functor: tensor/ops/elementwise.h.
//
// The op checks its arguments, infers shapes and allocates results. The kernel only computes. A call of a
// slot launches the kernel on the current stream of the first tensor's device: on cpu:0 it runs at once, on
// other devices it is queued.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

[[noreturn]] void throw_no_kernel(const char* op, Device device);

namespace internal {

// The defined tensors among a kernel's arguments. An argument of another type lists its tensors
// by for_each_tensor(value, f).
using TensorPointers = std::vector<const Tensor*>;
inline void collect(TensorPointers& into, const Tensor& x) {
  if (x.defined()) into.push_back(&x);
}
template <class T> void collect(TensorPointers& into, const T& arg) {
  if constexpr (requires { for_each_tensor(arg, [](const Tensor&) {}); })
    for_each_tensor(arg, [&](const Tensor& x) { collect(into, x); });
}
template <class T> void collect(TensorPointers& into, const std::vector<T>& list) {
  for (const T& element : list) collect(into, element);
}
bool any_on_meta(const TensorPointers& tensors);
// "f32[2,3] cuda:0, f32[3] cuda:0": the first ones, and how many there are more.
std::string describe(const TensorPointers& tensors);

}  // namespace internal

template <class... Args> class KernelSlot<void(const Tensor&, Args...)> {
 public:
  using Function = void (*)(const Tensor&, Args...);
  constexpr explicit KernelSlot(const char* op, Function cpu_kernel = nullptr) : cpu(cpu_kernel), op_(op) {}

  void operator()(const Tensor& out, Args... args) const {
    const Device device = out.device();
    if (device.type == DeviceType::kMeta) return observe(out, args...);
    const Function f = device.type == DeviceType::kCPU ? cpu : cuda;
    if (!f) throw_no_kernel(op_, device);
    if (Observer* o = observer()) [[unlikely]]
      return launch_observed(*o, f, out, args...);
    if (device == kCPU) return f(out, args...);
    if (device.type == DeviceType::kCUDA) return queue(f, out, args...);
    const Stream stream = current_stream(device);
    if (stream.is_inline()) return f(out, args...);
    // The queue holds copies of the tensors, so no block is freed before the kernel has used it.
    stream.enqueue([f, out, ... copies = std::decay_t<Args>(args)]() mutable { f(out, copies...); });
  }

  // Calls a kernel that queues its work itself. A failure of the device names the kernel's tensors.
  static void queue(Function f, const Tensor& out, Args... args) {
    try {
      f(out, args...);
    } catch (DeviceFailure& e) {
      e.name_tensors(internal::describe(tensors_of(out, args...)));
      throw;
    }
  }

  Function cpu;
  Function cuda = nullptr;

 private:
  void observe(const Tensor& out, const Args&... args) const {
    if (Observer* o = Context::current().observer.get()) o->launched(op_, tensors_of(out, args...));
  }

  // A queued kernel is timed while it runs on the stream's thread.
  [[gnu::noinline]] void launch_observed(Observer& o, Function f, const Tensor& out, Args... args) const {
    const internal::TensorPointers tensors = tensors_of(out, args...);
    if (o.leaves_out_meta() && internal::any_on_meta(tensors)) return;
    const int64_t range = o.announce({.kind = RangeKind::kKernel, .name = op_, .tensors = tensors});
    Ref<Observer> observer(&o);
    const Stream stream = current_stream(out.device());
    if (stream.is_inline() || out.device().type == DeviceType::kCUDA) {
      const RunningRange running(std::move(observer), range);
      return queue(f, out, args...);
    }
    stream.enqueue([f, out, observer, range, ... copies = std::decay_t<Args>(args)]() mutable {
      const RunningRange running(observer, range);
      f(out, copies...);
    });
  }

  static internal::TensorPointers tensors_of(const Tensor& out, const Args&... args) {
    internal::TensorPointers tensors;
    internal::collect(tensors, out);
    (internal::collect(tensors, args), ...);
    return tensors;
  }

  const char* op_;
};

}  // namespace gradus
