// What tools/train-faults.sh does.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

struct FaultsOptions {
  std::string executable, data;  // of the training; "": images that are drawn
  int repetitions = 50;
  uint64_t seed = 1;
};

// Returns a status.
int run_gan_faults(const FaultsOptions& options);

}  // namespace gradus::dist
