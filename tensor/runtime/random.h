// The random generator: counter-based Philox4x32-10. A random number is a function of seed, draw and element
// index, so results depend neither on the number of threads nor on the memory layout.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace gradus {

// Returns 128 random bits: Philox4x32-10 with the 64-bit key `key` and the 128-bit counter (counter, stream).
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t stream, uint64_t counter) {
  std::array<uint32_t, 4> c = {uint32_t(counter), uint32_t(counter >> 32), uint32_t(stream),
                               uint32_t(stream >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The key of one draw, such as one dropout mask. A kernel with the same key draws the same values.
struct PhiloxKey {
  uint64_t seed = 0;
  uint64_t stream = 0;  // number of the draw since seeding
};

// Produces PhiloxKeys from a seed. Copyable; the state is two numbers. Not thread-safe.
class RandomGenerator {
 public:
  explicit RandomGenerator(uint64_t seed = 0) : seed_(seed) {}
  void manual_seed(uint64_t seed) { *this = RandomGenerator(seed); }
  uint64_t seed() const { return seed_; }

  // Returns the key of the next draw.
  PhiloxKey next() { return {seed_, draws_++}; }

  // Returns an independent generator for one part of a draw, such as a micro-batch of a step. The draw must not be
  // used otherwise.
  static RandomGenerator of_part(PhiloxKey draw, uint64_t part) {
    const std::array<uint32_t, 4> bits = philox(draw.seed, draw.stream, part);
    return RandomGenerator(uint64_t(bits[1]) << 32 | bits[0]);
  }

  // Seed and number of draws, for checkpoints.
  std::array<uint64_t, 2> state() const { return {seed_, draws_}; }
  void set_state(std::array<uint64_t, 2> s) { seed_ = s[0], draws_ = s[1]; }

 private:
  uint64_t seed_;
  uint64_t draws_ = 0;
};

// Returns a uniform number in [0, 1) with 24 random bits.
inline float uniform_f32(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }
// Returns a uniform number in [0, 1) with 53 random bits.
inline double uniform_f64(uint32_t hi, uint32_t lo) {
  return double((uint64_t(hi) << 21) ^ (uint64_t(lo) >> 11)) * 0x1p-53;
}

// Seeds the current Context's generator.
void manual_seed(uint64_t seed);

}  // namespace gradus
