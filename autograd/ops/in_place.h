// The check that all public in-place ops make.
#pragma once

#include "gradus/autograd/graph/record.h"

namespace gradus::autograd {

// Throws StateError when an open recording follows x: a write into x would change what the
// recording's rules saved.
inline void check_in_place(const char* op, const Tensor& x) {
  if (is_tracked(x))
    throw StateError(op, "would overwrite a tensor that an open recording follows: ", describe(x),
                     "; use the op without '_', or do this outside of the recording");
}

}  // namespace gradus::autograd
