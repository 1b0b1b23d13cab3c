// The warning of DataParallel about devices of different sizes.
#pragma once

#include <string>
#include <vector>

#include "gradus/tensor/runtime/devices.h"

namespace gradus::dist::internal {

// Returns a warning if a device has less than 3/4 of another one's memory or multiprocessors, and so makes the others
// wait; else "".
std::string imbalance_of(const std::vector<DeviceProperties>& devices);

}  // namespace gradus::dist::internal
