// Correct kernels, and kernels with one fault each, for checker_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/fault.h"

namespace planted {

struct Case {
  std::string name;
  std::optional<gradus::cuda::emulated::FaultKind> fault;  // none: the kernel is correct
  std::string says;                                        // a part of the report's text
  // Launches and waits; returns whether the result is right (only meaningful without a fault; a fault needs a
  // FaultScope, else it ends the program).
  std::function<bool()> run;
};

const std::vector<Case>& cases();

// Launches a kernel that does nothing, on device 0, and does not wait. Errors: CudaError for a launch beyond
// the device's limits.
void launch_nothing(int64_t blocks, int threads, int64_t shared_bytes);

}  // namespace planted
