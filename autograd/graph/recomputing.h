// Whether a forward runs for a backward.
#pragma once

#include "gradus/tensor/runtime/context.h"

namespace gradus::autograd {

// Whether a rule calls this: a checkpoint that computes its function again. What a forward changes in a layer
// (batch norm's running statistics) has been changed by the first run then, and stays as it is.
inline bool is_recomputing() { return Context::current().running_node != nullptr; }

}  // namespace gradus::autograd
