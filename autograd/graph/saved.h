// Saved: a tensor that a rule keeps for backward, as PyTorch's SavedVariable.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// A tensor and the version of its storage when it was saved, made by Recorder::save or save_output.
class Saved {
 public:
  Saved() = default;
  // Returns the tensor with its slot in the graph; undefined if this Saved is empty. An output (save_output)
  // may be read only within the rule of its node.
  // Errors: StateError if the tensor was written in place after it was saved.
  Tensor get() const;
  // As get; in the rule's last run, also leaves this Saved empty, so that an op may reuse the buffer.
  Tensor release();

 private:
  friend class Recorder;
  Tensor tensor_;
  const char* op_ = nullptr;
  uint32_t version_ = 0;
  int8_t input_ = -1;  // the op's input number; -1: an output or an auxiliary tensor
  bool is_output_ = false;
  uint8_t output_ = 0;
};

}  // namespace gradus::autograd
