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
// thread, on meta nothing runs, on other devices the kernel is queued.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Throws the error of an op without a kernel for `device`.
// Errors: DeviceError; for a GPU first those of runtime_of (device_runtime.h).
[[noreturn]] void throw_no_kernel(const char* op, Device device);

namespace internal {

// The defined tensors among a kernel's arguments. A struct with tensors provides for_each_tensor(value, f).
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

// Type-erased operations on kernel arguments of a type T: launch() copies the arguments of a queued call.
struct ArgumentOps {
  size_t size;
  void (*copy)(void* to, const void* from);
  void (*destroy)(void*);
  void (*collect)(TensorPointers& into, const void*);
};
template <class T>
inline constexpr ArgumentOps argument_ops = {
    sizeof(T), [](void* to, const void* from) { new (to) T(*static_cast<const T*>(from)); },
    [](void* value) { static_cast<T*>(value)->~T(); },
    [](TensorPointers& into, const void* value) { internal::collect(into, *static_cast<const T*>(value)); }};

// A kernel call without the types of its arguments.
struct Argument {
  const void* value;
  const ArgumentOps* ops;
};
struct KernelCall {
  const char* op;
  void (*kernel)();                                          // null: the device has none
  void (*run)(void (*kernel)(), const Argument* arguments);  // casts both to their types and calls the kernel
  std::span<const Argument> arguments;                       // the first is the result
};

// Runs or queues a kernel on the device of the first argument, and reports the call to this thread's observer
// and capture.
// Errors: DeviceError without a kernel for the device.
void launch(const KernelCall& call);

}  // namespace internal

// The slot of kernels with this signature. The first argument's device selects the kernel. A queued kernel
// runs after the call with copies of the arguments, so arguments must own their data or refer to static data.
template <class... Args> class KernelSlot<void(const Tensor&, Args...)> {
 public:
  using Function = void (*)(const Tensor&, Args...);
  constexpr explicit KernelSlot(const char* op, Function cpu_kernel = nullptr) : cpu(cpu_kernel), op_(op) {}

  void operator()(const Tensor& out, Args... args) const {
    const Device device = out.device();
    const Context& context = Context::current();
    if (device == kCPU && cpu && !observer() && !context.skip_meta_kernels && !context.capture) [[likely]]
      return cpu(out, args...);
    const internal::Argument arguments[] = {{&out, &internal::argument_ops<Tensor>},
                                            {&args, &internal::argument_ops<std::decay_t<Args>>}...};
    const Function kernel = device.type == DeviceType::kCUDA ? cuda : cpu;
    internal::launch({op_, reinterpret_cast<void (*)()>(kernel), &run, arguments});
  }

  // The kernels; null: none. CUDA kernels are set by static initializers of the files that define them.
  Function cpu;
  Function cuda = nullptr;

 private:
  static void run(void (*kernel)(), const internal::Argument* arguments) {
    [&]<size_t... i>(std::index_sequence<i...>) {
      reinterpret_cast<Function>(kernel)(*static_cast<const Tensor*>(arguments[0].value),
                                         *static_cast<const std::decay_t<Args>*>(arguments[i + 1].value)...);
    }(std::index_sequence_for<Args...>());
  }

  const char* op_;
};

}  // namespace gradus
