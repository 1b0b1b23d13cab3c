// is_recomputing(): whether a checkpoint is running its forward again during a backward.
#pragma once

#include "gradus/tensor/runtime/context.h"

namespace gradus::autograd {

// Returns whether a backward rule is running on this thread. A forward within a rule is the second run of a
// checkpoint's function. Layers that update state in a forward (running statistics of batch norm) must not update
// it again in this run.
inline bool is_recomputing() { return Context::current().running_node != nullptr; }

}  // namespace gradus::autograd
