#include "gradus/tensor/kernel.h"

namespace gradus {

void throw_no_kernel(const char* op, Device device) {
  throw DeviceError(op, "has no kernel for ", device,
                    device.type == DeviceType::kCUDA ? " (built without CUDA)" : "");
}

}  // namespace gradus
