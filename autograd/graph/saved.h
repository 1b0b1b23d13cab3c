// The tensors that a rule keeps for its backward.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// A tensor that a rule keeps, with its storage's version. After a later in-place write, get()
// throws a StateError.
class Saved {
 public:
  Saved() = default;
  // Returns the tensor, with its place in the graph.
  Tensor get() const;
  // The same, but releases this reference when it is the rule's last run, so that the buffer may be reused.
  Tensor take();

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
