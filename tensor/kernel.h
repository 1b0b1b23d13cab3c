// Kernel slots: how an op finds the code that computes it. Each op has one slot; each backend's kernel file fills it when
// it is linked:
//
//   // tensor/ops/relu.h      KernelSlot<void(const Tensor& out, const Tensor& x)> in namespace raw
//   inline constinit KernelSlot<void(const Tensor&, const Tensor&)> relu_kernel{"relu"};
//   // tensor/cpu/relu.cc     static const RegisterKernel reg(relu_kernel, DeviceType::kCPU, &relu_cpu);
//   // tensor/ops/relu.cc     relu_kernel(out, x);
//
// The op validates, infers shapes and allocates; a kernel receives clean tensors and only computes. Calling a slot
// launches the kernel on the current stream of the first tensor's device: at once on cpu:0, queued elsewhere.
#pragma once

#include <array>
#include <span>
#include <tuple>
#include <type_traits>

#include "gradus/tensor/context.h"
#include "gradus/tensor/stream.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

[[noreturn]] void throw_no_kernel(const char* op, Device device);

template <class Signature>
class KernelSlot;

template <class... Args>
class KernelSlot<void(const Tensor&, Args...)> {
 public:
  using Function = void (*)(const Tensor&, Args...);
  constexpr explicit KernelSlot(const char* op) : op_(op) {}

  void operator()(const Tensor& out, Args... args) const {
    const Device device = out.device();
    if (device.type == DeviceType::kMeta) return observe(out, args...);
    const Function f = device.type == DeviceType::kCPU ? cpu : cuda;
    if (!f) throw_no_kernel(op_, device);
    if (device == kCPU) return f(out, args...);
    const Stream stream = current_stream(device);
    if (stream.is_inline() || device.type == DeviceType::kCUDA) return f(out, args...);
    // The queue keeps its own copies of the tensors, so a block cannot be freed before the kernel has used it.
    stream.enqueue([f, out, copies = std::tuple<std::decay_t<Args>...>(args...)]() mutable {
      std::apply([&](auto&... a) { f(out, a...); }, copies);
    });
  }

  Function cpu = nullptr;
  Function cuda = nullptr;

 private:
  void observe(const Tensor& out, const Args&... args) const {
    LaunchObserver* observer = Context::current().observer;
    if (!observer) return;
    std::array<const Tensor*, 1 + sizeof...(Args)> tensors;
    size_t n = 0;
    const auto add = [&]<class T>(const T& arg) {
      if constexpr (std::is_same_v<T, Tensor>)
        if (arg.defined()) tensors[n++] = &arg;
    };
    add(out), (add(args), ...);
    observer->launched(op_, std::span(tensors.data(), n));
  }

  const char* op_;
};

struct RegisterKernel {
  template <class Slot>
  RegisterKernel(Slot& slot, DeviceType device, typename Slot::Function f) {
    (device == DeviceType::kCPU ? slot.cpu : slot.cuda) = f;
  }
};

}  // namespace gradus
