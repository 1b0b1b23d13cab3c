// Mutation test of kernels: in the copies of kernels that mutate.py writes, mutant(n) disables check n (a
// barrier, a bound, an alignment check, a lane of a mask).
#pragma once

#include <cstdint>

namespace gradus::cuda {

// Returns whether the environment variable GRADUS_MUTANT selects mutant `number`. Constant while the program
// runs.
[[gnu::const]] bool mutant(int number);

// Returns the mask, without its highest lane if `wanted`.
inline uint32_t mutant_mask(bool wanted, uint32_t mask) {
  return wanted ? mask & ~(0x80000000u >> __builtin_clz(mask)) : mask;
}

}  // namespace gradus::cuda
