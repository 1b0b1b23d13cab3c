// Compile-time reflection: fields of aggregates, names of fields and enumerators. Many checks are
// static_asserts.
#include "gradus/tensor/base/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "gradus/tensor/base/required.h"
#include "gradus/tensor/base/shape.h"

namespace gradus {
namespace {

using testing::ElementsAre;

enum class Color { kRed, kBlue = 3 };
struct NoDefault {
  explicit NoDefault(int) {}
};
struct Inner {
  Required<int64_t, "depth"> depth;
};
struct Twelve {  // the maximal number of fields
  Inner inner;
  Required<Shape, "sizes"> sizes;
  Required<Size2, "kernel"> kernel;
  Size2 stride = 1;
  std::optional<double> momentum = 0.1;
  std::vector<double> scales = {1, 2};
  Dims dims = {};
  Color color = Color::kRed;
  NoDefault none{1};
  bool bias = true;
  std::string text_2 = {};
  const int last = 7;
};
struct Thirteen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m;
};
struct Derived : Inner {
  int more = 1;
};
struct Renamed : Inner {};
class Closed {
  [[maybe_unused]] int hidden_ = 0;
};

TEST(Fields, HaveTheNamesOfTheMembers) {
  EXPECT_THAT(field_names<Twelve>(), ElementsAre("inner", "sizes", "kernel", "stride", "momentum", "scales",
                                                 "dims", "color", "none", "bias", "text_2", "last"));
  EXPECT_THAT(field_names<Inner>(), ElementsAre("depth"));
}

TEST(Fields, AreTheMembers) {
  Inner one{.depth = 3};
  EXPECT_EQ(&std::get<0>(fields(one)), &one.depth);
  const Twelve all{.inner = one, .sizes = {2, 3}, .kernel = 5};
  const auto refs = fields(all);
  EXPECT_EQ(&std::get<0>(refs), &all.inner);
  EXPECT_EQ(&std::get<5>(refs), &all.scales);
  EXPECT_EQ(&std::get<11>(refs), &all.last);
}

TEST(Fields, AreThoseOfAggregatesAlone) {
  static_assert(HasFields<Twelve> && HasFields<const Inner>);
  static_assert(!HasFields<Thirteen> && !HasFields<Closed> && !HasFields<int>);
  static_assert(!HasFields<Derived> && !HasFields<Renamed>);
  struct Empty {};
  static_assert(!HasFields<Empty>);
}

TEST(EnumeratorName, IsThatOfTheValue) {
  EXPECT_EQ(enumerator_name(Color::kRed), "kRed");
  EXPECT_EQ(enumerator_name(Color::kBlue), "kBlue");
  EXPECT_EQ(enumerator_name(Color(100)), "?");
}

}  // namespace
}  // namespace gradus
