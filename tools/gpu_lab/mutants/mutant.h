// Which check of the kernels is taken out, in copies that mutate.py writes.
#pragma once

#include <cstdint>

namespace gradus::cuda {

// Whether it is mutant `number`: that of GRADUS_MUTANT. Does not change while the program runs.
[[gnu::const]] bool mutant(int number);

// The mask without its highest lane, if wanted.
inline uint32_t mutant_mask(bool wanted, uint32_t mask) {
  return wanted ? mask & ~(0x80000000u >> __builtin_clz(mask)) : mask;
}

}  // namespace gradus::cuda
