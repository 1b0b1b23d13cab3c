// Error for missing kernels, and helpers of KernelSlot.
#include "gradus/tensor/kernel.h"

#include <algorithm>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus {

void throw_no_kernel(const char* op, Device device) {
  if (device.type != DeviceType::kCUDA) throw DeviceError(op, "has no kernel for ", device);
  internal::runtime_of(device, op);
  throw DeviceError(op, "has no kernel for ", device, " yet: compute it on the CPU, to(x, kCPU)");
}

std::string internal::describe(const TensorPointers& tensors) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, tensors.size()); ++i)
    text += (i ? ", " : "") + gradus::describe(*tensors[i]);
  if (tensors.size() > kShown) text += concat(" and ", tensors.size() - kShown, " more");
  return text;
}

bool internal::any_on_meta(const TensorPointers& tensors) {
  return std::ranges::any_of(tensors, [](const Tensor* x) { return x->device().type == DeviceType::kMeta; });
}

}  // namespace gradus
