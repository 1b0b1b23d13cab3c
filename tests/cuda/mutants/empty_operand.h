// What the allocator is told of in the place of an operand, in copies that mutate.py writes.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// A tensor of no elements in no block, on the device of x.
inline const Tensor* empty_operand(const Tensor& x) {
  return new Tensor(empty({0}, {.device = x.defined() ? x.device() : kCPU}));  // the program ends soon
}

}  // namespace gradus::cuda
