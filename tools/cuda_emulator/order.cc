// The seed of order.h.
#include "gradus/tools/cuda_emulator/order.h"

#include <atomic>
#include <cstdlib>

namespace gradus::cuda::emulated {
namespace {

std::atomic<uint64_t>& chosen() {
  static std::atomic<uint64_t> value = [] {
    const char* text = std::getenv("GRADUS_EMULATED_SEED");
    return text ? std::strtoull(text, nullptr, 10) : 1;
  }();
  return value;
}

}  // namespace

uint64_t seed() { return chosen(); }
void set_seed(uint64_t seed) { chosen() = seed; }

}  // namespace gradus::cuda::emulated
