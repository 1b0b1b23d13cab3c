// Whether ops are recorded now: is_tracked for a tensor, is_recomputing for the second run of a checkpoint.
#pragma once

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// Returns whether an op on `x` would be recorded now.
bool is_tracked(const Tensor& x);
template <class... T> bool any_tracked(const T&... xs) { return (is_tracked(xs) || ...); }

// Returns whether a backward rule is running on this thread. A forward within a rule is the second run of a
// checkpoint's function. Layers that update state in a forward (running statistics of batch norm) must not
// update it again in this run.
inline bool is_recomputing() { return Context::current().running_node != nullptr; }

}  // namespace gradus::autograd
