// Checks of in-place ops: a write must not change a tensor that an open recording follows.
#pragma once

#include "gradus/autograd/graph/record.h"

namespace gradus::autograd {

// Throws StateError for an attached tensor. Called by `x op= y` and `x[i] = y` with a recorded operand: these
// assign a new tensor to the handle x, while managers, optimizers and modules would keep the attached tensor.
void check_not_leaf(const char* op, const Tensor& x);

// Throws StateError when an open recording follows x: a write would change values that rules have saved.
void check_in_place(const char* op, const Tensor& x);

}  // namespace gradus::autograd
