// Errors that are no mistake of the user's: a device or its libraries have failed, or memory is short.
#pragma once

#include <string>
#include <utility>

#include "gradus/tensor/base/error.h"

namespace gradus {

// A call of a device's runtime or libraries has failed. The text names the op, the call and the device, and
// the tensors of the kernel or copy that made the call.
class DeviceFailure : public Error {
 public:
  using Error::Error;
  // Puts "for <tensors>: " in front of the text. Only the first call counts, which is the innermost kernel's.
  void name_tensors(const std::string& tensors) {
    if (!std::exchange(names_tensors_, true)) add_context("for " + tensors);
  }

 private:
  bool names_tensors_ = false;
};

// Memory is short. The text says what was asked for, and what is held.
struct OutOfMemoryError : DeviceFailure {
  using DeviceFailure::DeviceFailure;
};

}  // namespace gradus
