// Errors of values that kernels find: one text on all devices.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/error.h"

namespace gradus::raw {

[[noreturn]] inline void throw_no_class(const char* op, int64_t target, int64_t sample, int64_t classes) {
  throw IndexError(op, "target ", target, " of sample ", sample, " is no class: there are ", classes);
}
[[noreturn]] inline void throw_no_probability(double p, int64_t at) {
  throw ValueError("bernoulli", "expected probabilities from 0 to 1, given ", p, " at ", at);
}

}  // namespace gradus::raw
