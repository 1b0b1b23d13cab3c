// Philox4x32-10 against published known answers, RandomGenerator, and the conversion of bits to uniform
// numbers.
#include "gradus/tensor/runtime/random.h"

#include <gtest/gtest.h>

namespace gradus {
namespace {

using Block = std::array<uint32_t, 4>;

// The known-answer vectors of philox4x32-10 that come with Random123 (kat_vectors).
TEST(Philox, GivesThePublishedNumbers) {
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: digits of pi. Low words come first.
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomGenerator, ReservesOneStreamPerDraw) {
  RandomGenerator g(5);
  const PhiloxKey a = g.next(), b = g.next();
  EXPECT_EQ(a.seed, 5u);
  EXPECT_EQ(a.stream, 0u);
  EXPECT_EQ(b.stream, 1u);
}

TEST(RandomGenerator, GoesOnFromASavedState) {
  RandomGenerator g(5);
  g.next();
  const auto state = g.state();
  const PhiloxKey want = g.next();
  RandomGenerator other(99);
  other.set_state(state);
  const PhiloxKey got = other.next();
  EXPECT_EQ(got.seed, want.seed);
  EXPECT_EQ(got.stream, want.stream);
}

TEST(RandomGenerator, SeedingStartsOver) {
  RandomGenerator g(5);
  g.next();
  g.manual_seed(6);
  EXPECT_EQ(g.next().stream, 0u);
  EXPECT_EQ(g.seed(), 6u);
}

TEST(Uniform, LiesInTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform_f32(0), 0.0f);
  EXPECT_LT(uniform_f32(~0u), 1.0f);
  EXPECT_EQ(uniform_f32(0x80000000u), 0.5f);
  EXPECT_EQ(uniform_f64(0, 0), 0.0);
  EXPECT_EQ(uniform_f64(~0u, ~0u), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform_f64(0x80000000u, 0), 0.5);
}

}  // namespace
}  // namespace gradus
