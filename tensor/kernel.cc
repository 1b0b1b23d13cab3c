#include "gradus/tensor/kernel.h"

#include <algorithm>

namespace gradus {

void throw_no_kernel(const char* op, Device device) {
  throw DeviceError(op, "has no kernel for ", device,
                    device.type == DeviceType::kCUDA ? " (built without CUDA)" : "");
}

bool internal::any_on_meta(const TensorPointers& tensors) {
  return std::ranges::any_of(tensors, [](const Tensor* x) { return x->device().type == DeviceType::kMeta; });
}

}  // namespace gradus
