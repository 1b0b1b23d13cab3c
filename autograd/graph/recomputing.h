// Tells whether a forward is repeated during a backward.
#pragma once

#include "gradus/tensor/runtime/context.h"

namespace gradus::autograd {

// Returns whether a rule is running. A forward that runs then belongs to a checkpoint that computes its
// function again. A layer that changes its state in a forward (batch norm's running statistics) must not
// change it in this repetition: the first run has changed it already.
inline bool is_recomputing() { return Context::current().running_node != nullptr; }

}  // namespace gradus::autograd
