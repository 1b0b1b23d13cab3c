// The checks of ops that write into a tensor.
#pragma once

#include "gradus/autograd/graph/record.h"

namespace gradus::autograd {

// Throws StateError for an attached tensor. `x op= y` and `x[i] = y` of a recorded operand call it: they would
// make their handle name a new tensor, while managers, optimizers and modules keep the attached one.
void check_not_leaf(const char* op, const Tensor& x);

// Throws StateError when an open recording follows x: a write into x would change what the
// recording's rules saved.
void check_in_place(const char* op, const Tensor& x);

}  // namespace gradus::autograd
