// Dims (the type of shapes and strides), wrap_dim, broadcasting, counts checked for overflow, Size2.
#include "gradus/tensor/base/shape.h"

#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr int64_t kHuge = int64_t{1} << 40;

TEST(Dims, InsertsErasesAndAppends) {
  Dims d{2, 3};
  d.push_back(5);
  d.insert(0, 7);
  d.insert(2, 1);
  EXPECT_EQ(d, (Dims{7, 2, 1, 3, 5}));
  d.erase(2);
  d.erase(0);
  EXPECT_EQ(d, (Dims{2, 3, 5}));
  EXPECT_EQ(d.back(), 5);
  EXPECT_EQ(d.product(), 30);
  EXPECT_EQ(Dims().product(), 1);
  EXPECT_EQ(Dims::filled(3, 4), (Dims{4, 4, 4}));
}

TEST(Dims, HoldsEightDimensionsAndRefusesTheNinth) {
  Dims d = Dims::filled(8, 1);
  EXPECT_ERROR(ShapeError, d.push_back(1), "at most 8", "got 9");
  EXPECT_ERROR(ShapeError, d.insert(0, 1), "at most 8");
  EXPECT_ERROR(ShapeError, Dims(std::vector<int64_t>(1000, 1)), "at most 8", "got 1000");
  EXPECT_ERROR(ShapeError, (Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}), "got 9");
  EXPECT_ERROR(ShapeError, Dims::filled(9, 0), "got 9");
  EXPECT_EQ(d.size(), 8);
}

TEST(Dims, EntriesBeyondTheEndDoNotCountInComparisons) {
  Dims d{1, 2, 3};
  d.erase(2);
  EXPECT_EQ(d, (Dims{1, 2}));
  EXPECT_FALSE((d == Dims{1, 2, 3}));
}

TEST(Dims, PrintWithoutSpaces) {
  EXPECT_EQ(to_string(Dims{32, 8, 28, 28}), "[32,8,28,28]");
  EXPECT_EQ(to_string(Dims{}), "[]");
  EXPECT_EQ(concat(Dims{-1, 0}, ' ', Size2(3, 5)), "[-1,0] 3x5");
}

TEST(WrapDim, CountsNegativeOnesFromTheBack) {
  EXPECT_EQ(wrap_dim(-1, 4, "op"), 3);
  EXPECT_EQ(wrap_dim(-4, 4, "op"), 0);
  EXPECT_EQ(wrap_dim(3, 4, "op"), 3);
}

TEST(WrapDim, TakesZeroAndMinusOneOfANumber) {
  EXPECT_EQ(wrap_dim(0, 0, "op"), 0);
  EXPECT_EQ(wrap_dim(-1, 0, "op"), 0);
  EXPECT_ERROR(IndexError, wrap_dim(1, 0, "sum"), "[sum] dimension 1 out of range [-1, 0]");
}

TEST(WrapDim, NamesTheRangeOfADimensionOutside) {
  EXPECT_ERROR(IndexError, wrap_dim(4, 4, "softmax"), "[softmax] dimension 4 out of range [-4, 3]");
  EXPECT_ERROR(IndexError, wrap_dim(-5, 4, "softmax"), "dimension -5");
  EXPECT_THROW(wrap_dim(INT64_MIN, 4, "op"), IndexError);
  EXPECT_THROW(wrap_dim(INT64_MAX, 4, "op"), IndexError);
}

TEST(BroadcastShapes, AlignsAtTheBackAndStretchesOnes) {
  EXPECT_EQ(broadcast_shapes({2, 3, 4}, {3, 1}, "add"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes({3, 1}, {2, 1, 4}, "add"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes({}, {5}, "add"), (Shape{5}));
  EXPECT_EQ(broadcast_shapes({}, {}, "add"), Shape{});
}

TEST(BroadcastShapes, AOneStretchesToNothing) {
  EXPECT_EQ(broadcast_shapes({1, 3}, {0, 3}, "add"), (Shape{0, 3}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "add"), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({0}, {}, "add"), (Shape{0}));
  EXPECT_THROW(broadcast_shapes({0}, {2}, "add"), ShapeError);
}

TEST(BroadcastShapes, NamesBothShapesWhenTheyDoNotFit) {
  EXPECT_ERROR(ShapeError, broadcast_shapes({2, 3}, {2, 4}, "mul"), "[mul]", "[2,3] and [2,4]");
  EXPECT_ERROR(ShapeError, broadcast_shapes({3}, {2, 4}, "mul"), "[3] and [2,4]");
}

TEST(CheckedNumel, MultipliesTheSizes) {
  EXPECT_EQ(checked_numel({}, "op"), 1);
  EXPECT_EQ(checked_numel({2, 3, 4}, "op"), 24);
  EXPECT_EQ(checked_numel({5, 0, 7}, "op"), 0);
  EXPECT_EQ(checked_numel({int64_t{1} << 59}, "op"), int64_t{1} << 59);
}

TEST(CheckedNumel, RefusesNegativeSizesEvenBesideAZero) {
  EXPECT_ERROR(ShapeError, checked_numel({2, -3}, "reshape"), "[reshape] negative size in shape [2,-3]");
  EXPECT_THROW(checked_numel({0, -1}, "op"), ShapeError);
  EXPECT_THROW(checked_numel({-1, 0}, "op"), ShapeError);
}

TEST(CheckedNumel, RefusesWhatOverflowsInElementsOrInBytes) {
  EXPECT_ERROR(ShapeError, checked_numel({kHuge, kHuge}, "empty"),
               "[empty] shape too large: [1099511627776,");
  EXPECT_THROW(checked_numel({INT64_MAX}, "op"), ShapeError);
  EXPECT_THROW(checked_numel({int64_t{1} << 61}, "op"), ShapeError);
  EXPECT_THROW(checked_numel({int64_t{1} << 32, int64_t{1} << 32, 2}, "op"), ShapeError);
  // Its strides would not fit either.
  EXPECT_THROW(checked_numel({kHuge, kHuge, 0}, "op"), ShapeError);
}

TEST(Strides, RowMajorCountsFromTheBackAndSkipsEmptySizes) {
  EXPECT_EQ(row_major_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(row_major_strides({2, 0, 4}), (Strides{4, 4, 1}));
  EXPECT_EQ(row_major_strides({}), Strides{});
}

TEST(Strides, ChannelsLastPutsChannelsInnermost) {
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5}), (Strides{60, 1, 15, 3}));
  EXPECT_EQ(channels_last_strides({2, 3, 5}), (Strides{15, 1, 3}));
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5, 6}), (Strides{360, 1, 90, 18, 3}));
  EXPECT_ERROR(ShapeError, channels_last_strides({2, 3}), "3 to 5 dimensions", "[2,3]");
}

TEST(Size2, OneNumberMeansBoth) {
  EXPECT_EQ(Size2(3), Size2(3, 3));
  EXPECT_FALSE((std::is_convertible_v<double, Size2>));
}

}  // namespace
}  // namespace gradus
