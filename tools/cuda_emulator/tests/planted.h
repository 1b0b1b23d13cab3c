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
  std::function<bool()> run;  // launches and waits; returns whether the result is right
};

const std::vector<Case>& cases();

// Launches a kernel that does nothing.
void launch_nothing(int64_t blocks, int threads, int64_t shared_bytes);

}  // namespace planted
