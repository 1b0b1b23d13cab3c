// Errors of the environment, not of the caller: failures of a device or of its libraries, and a lack of memory.
#pragma once

#include <string>
#include <utility>

#include "gradus/tensor/base/error.h"

namespace gradus {

// A call of a device runtime or library has failed. The text names the op, the call, the device, and the tensors
// of the kernel or copy.
class DeviceFailure : public Error {
 public:
  using Error::Error;
  // Prepends "for <tensors>: " to the text. Only the first call has an effect: that of the innermost kernel.
  void name_tensors(const std::string& tensors) {
    if (!std::exchange(names_tensors_, true)) add_context("for " + tensors);
  }

 private:
  bool names_tensors_ = false;
};

// An allocation on the host or on a device failed. The text has the requested bytes and the memory in use.
struct OutOfMemoryError : DeviceFailure {
  using DeviceFailure::DeviceFailure;
};

}  // namespace gradus
