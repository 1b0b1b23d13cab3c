// Options of layers: which types initialize an integer option (no double, no bool), by concepts at compile
// time, and their values. tests/install/headers_test.sh tests that required options cannot be left out.
#include <gtest/gtest.h>

#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"

namespace gradus {
namespace {

template <class O, class T>
concept BuiltFromIn = requires(T in) { O{.in = in, .out = 1}; };
template <class O, class T>
concept BuiltFromKernel = requires(T kernel) { O{.in = 1, .out = 1, .kernel = kernel}; };

static_assert(BuiltFromIn<nn::LinearOptions, int>);
static_assert(BuiltFromIn<nn::LinearOptions, size_t>);
static_assert(!BuiltFromIn<nn::LinearOptions, double>);
static_assert(!BuiltFromIn<nn::LinearOptions, bool>);
static_assert(BuiltFromKernel<nn::Conv2dOptions, int>);
static_assert(BuiltFromKernel<nn::Conv2dOptions, Size2>);
static_assert(!BuiltFromKernel<nn::Conv2dOptions, double>);

// Modules can be neither copied nor moved.
static_assert(!std::is_copy_constructible_v<nn::Linear> && !std::is_move_constructible_v<nn::Linear>);
static_assert(!std::is_copy_assignable_v<nn::Linear> && !std::is_move_assignable_v<nn::Linear>);

TEST(Options, ReadAsWhatTheyHold) {
  const nn::Conv2dOptions o{.in = 3, .out = size_t{8}, .kernel = {3, 5}};
  EXPECT_EQ(o.in + o.out, 11);
  EXPECT_EQ(o.kernel->w, 5);
  EXPECT_EQ(optim::SGDOptions{.lr = 1}.lr, 1.0);
}

TEST(Options, MayBeEmptyBraces) {
  const nn::Dropout plain, empty({}), nested{{}}, given({.p = 0.1});
  EXPECT_EQ(plain.options().p, 0.5);
  EXPECT_EQ(empty.options().p, 0.5);
  EXPECT_EQ(nested.options().p, 0.5);
  EXPECT_EQ(given.options().p, 0.1);
  static_assert(!std::is_constructible_v<nn::Dropout, int>);
}

}  // namespace
}  // namespace gradus
