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

}  // namespace gradus::cuda
