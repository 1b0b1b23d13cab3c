// The hash of a word and its position, shared by the kernels of all devices. GRADUS_HD marks host and device functions.
#pragma once

#include <cstdint>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::raw {

// Returns a bijection of `word` for each position, so that a sum of hashes changes with any single word.
// Source: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
GRADUS_HD uint64_t hash_of_word(uint64_t word, uint64_t position) {
  uint64_t z = word + (position + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

}  // namespace gradus::raw
