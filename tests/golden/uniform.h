// Pseudo-random numbers that Python scripts and C++ tests compute alike, so that no file stores them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradus::golden {

// n numbers in [-1,1), multiples of 2^-15: exact in every language and floating-point format. Number i is
// the upper 16 bits of splitmix64 of i plus the name's FNV-1a hash.
inline std::vector<double> uniform(const std::string& name, int64_t n) {
  uint64_t start = 0xCBF29CE484222325u;
  for (unsigned char c : name) start = (start ^ c) * 0x100000001B3u;
  std::vector<double> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) {
    uint64_t z = (start + i) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    v[i] = double(z >> 48) / 32768 - 1;
  }
  return v;
}

}  // namespace gradus::golden
