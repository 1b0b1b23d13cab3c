// Random numbers for fuzzers, reproducible from a seed on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace gradus::kerneltest {

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  // Uniform in [first, last].
  int64_t in(int64_t first, int64_t last) { return first + int64_t(bits_() % uint64_t(last - first + 1)); }
  bool one_in(int64_t n) { return in(1, n) == 1; }
  template <class T> T of(std::initializer_list<T> list) {
    return list.begin()[in(0, int64_t(list.size()) - 1)];
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace gradus::kerneltest
