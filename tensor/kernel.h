// KernelSlot: dispatch of an op to its kernel for a device type. Each op has one slot with a function pointer per
// device type. The slot is declared in the op's header and defined in the file of its CPU kernel, so a program
// links only the kernels of the ops that it uses:
//
//   // tensor/ops/softmax.h      in namespace raw
//   extern KernelSlot<void(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log)>
//       softmax_kernel;
//   // tensor/cpu/softmax.cc     constinit decltype(softmax_kernel) softmax_kernel{"softmax", &softmax_cpu};
//   // tensor/ops/softmax.cc     softmax_kernel(y, x, n, inner, log);
//
// Slots of element-wise ops are templates over the functor (tensor/ops/elementwise.h).
//
// The op checks its arguments, infers shapes and allocates results; the kernel only computes. Calling a slot
// launches the kernel on the current stream of the first tensor's device: on cpu:0 the kernel runs in the calling
// thread, on other devices it is queued.
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

// The defined tensors among a kernel's arguments. Other argument types with tensors provide for_each_tensor(value,
// f).
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
// Returns "f32[2,3] cuda:0, f32[3] cuda:0", with up to 6 tensors and the number of others.
std::string describe(const TensorPointers& tensors);

}  // namespace internal

// The slot of kernels with this signature. The first argument's device selects the kernel.
template <class... Args> class KernelSlot<void(const Tensor&, Args...)> {
 public:
  using Function = void (*)(const Tensor&, Args...);
  constexpr explicit KernelSlot(const char* op, Function cpu_kernel = nullptr) : cpu(cpu_kernel), op_(op) {}

  void operator()(const Tensor& out, Args... args) const {
    const Device device = out.device();
    if (device.type == DeviceType::kMeta) return observe(out, args...);
    const Function f = device.type == DeviceType::kCPU ? cpu : cuda;
    if (!f) throw_no_kernel(op_, device);
    if (Context::current().skip_meta_kernels && internal::any_on_meta(tensors_of(out, args...))) [[unlikely]]
      return;
    if (Observer* o = observer()) [[unlikely]]
      return launch_observed(*o, f, out, args...);
    if (device == kCPU) return f(out, args...);
    if (device.type == DeviceType::kCUDA) return queue(f, out, args...);
    const Stream stream = current_stream(device);
    if (stream.is_inline()) return f(out, args...);
    // The queued task owns copies of the tensors, so their memory lives until the kernel has run.
    stream.enqueue([f, out, ... copies = std::decay_t<Args>(args)]() mutable { f(out, copies...); });
  }

  // Calls a GPU kernel, which queues its work itself. A DeviceFailure is annotated with the tensors.
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

  // Launches with an observer. On queued CPU devices the range begins and ends on the stream's thread.
  [[gnu::noinline]] void launch_observed(Observer& o, Function f, const Tensor& out, Args... args) const {
    const internal::TensorPointers tensors = tensors_of(out, args...);
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
