// Pseudo-random choice of every order that CUDA leaves undefined: of blocks, threads, wake-ups and streams.
// One seed determines them all.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gradus::cuda::emulated {

// The seed of all orders: GRADUS_EMULATED_SEED, else 1, until set_seed() changes it. A program with the same
// seed runs in the same order.
uint64_t seed();
void set_seed(uint64_t seed);

// The random numbers (SplitMix64) of one launch or of one choice between streams, which `number` identifies.
class Order {
 public:
  explicit Order(uint64_t number)
      : state_(seed() * 0x9E3779B97F4A7C15u ^ (number + 1) * 0xD1B54A32D192ED03u) {}

  // Returns a number below n.
  uint32_t below(uint32_t n) {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<uint32_t>(((z >> 32) * n) >> 32);
  }

  // Sets `list` to 0 ... n - 1, shuffled.
  void shuffle(std::vector<uint32_t>* list, uint32_t n) {
    list->resize(n);
    std::iota(list->begin(), list->end(), 0u);
    for (uint32_t i = n; i > 1; --i) std::swap((*list)[i - 1], (*list)[below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace gradus::cuda::emulated
