// What a kernel steps: a parameter, its gradient and states, row-major.
#pragma once

#include <array>
#include <cstdint>

namespace gradus::cuda {

struct StepArrays {
  void *param, *grad;
  std::array<void*, 3> state;
  int64_t n;
};

// What the device knows of a step: a rule for each tensor with elements, in their order, or null if the
// launch has one for all; and whether the step is left out: where *found is not 0. Null: it is not.
template <class Rule> struct KnownOnDevice {
  const Rule* rules = nullptr;
  const float* found = nullptr;
};

}  // namespace gradus::cuda
