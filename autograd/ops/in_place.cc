// The checks of in-place ops against open recordings.
#include "gradus/autograd/ops/in_place.h"

namespace gradus::autograd {

void check_not_leaf(const char* op, const Tensor& x) {
  if (x.defined() && x.ref()->slot && x.ref()->slot->is_leaf())
    throw StateError(op, "would overwrite an attached tensor (a parameter) under a recording: x ",
                     describe(x), "; write into it under `const auto off = no_record();`, or into clone(x)");
}

void check_in_place(const char* op, const Tensor& x) {
  if (!is_tracked(x)) return;
  check_not_leaf(op, x);
  throw StateError(op, "would overwrite a tensor that an open recording follows: ", describe(x),
                   "; use the op without '_', or do this outside of the recording");
}

}  // namespace gradus::autograd
