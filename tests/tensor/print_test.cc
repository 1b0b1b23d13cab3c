// The text of tensors: to_string (number formats, alignment, line breaks, abbreviation) and describe.
#include <chrono>
#include <numeric>
#include <sstream>
#include <thread>

#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.product()));
  std::iota(values.begin(), values.end(), 0.f);
  return tensor(values, shape);
}

TEST(Print, WholeNumbersEndInAPoint) {
  EXPECT_EQ(to_string(tensor({1.f, 2.f})), "[1., 2.]\nf32[2] cpu");
  EXPECT_EQ(to_string(tensor({1.f, -20.f})), "[  1., -20.]\nf32[2] cpu");
}

TEST(Print, FractionsHaveFourDigits) {
  EXPECT_EQ(to_string(tensor({0.5, -1.25})), "[ 0.5000, -1.2500]\nf64[2] cpu");
}

TEST(Print, ValuesFarApartGetAnExponent) {
  EXPECT_EQ(to_string(tensor({0.5, 1e4})), "[5.0000e-01, 1.0000e+04]\nf64[2] cpu");
  EXPECT_EQ(to_string(tensor({0.00001})), "[1.0000e-05]\nf64[1] cpu");
  EXPECT_EQ(to_string(tensor({1e9, 1.0})), "[1.0000e+09, 1.0000e+00]\nf64[2] cpu");
  EXPECT_EQ(to_string(tensor({1e4, 1.0})), "[10000.,     1.]\nf64[2] cpu");
}

TEST(Print, NaNAndInfinityStandInTheColumns) {
  EXPECT_EQ(to_string(tensor({NAN, INFINITY, -INFINITY, 1.5})),
            "[   nan,    inf,   -inf, 1.5000]\nf64[4] cpu");
  EXPECT_EQ(to_string(tensor({NAN, 2.0})), "[nan,  2.]\nf64[2] cpu");
  EXPECT_EQ(to_string(tensor({NAN})), "[nan]\nf32[1] cpu");
}

TEST(Print, IntegersAreExact) {
  EXPECT_EQ(to_string(tensor({1, -20})), "[  1, -20]\ni64[2] cpu");
  EXPECT_EQ(to_string(tensor(std::vector<int64_t>{INT64_MAX}, {1})), "[9223372036854775807]\ni64[1] cpu");
  EXPECT_EQ(to_string(tensor(std::vector<uint8_t>{7, 255}, {2})), "[  7, 255]\nu8[2] cpu");
}

TEST(Print, TruthValuesAreWords) {
  EXPECT_EQ(to_string(tensor(std::vector<bool>{true, false}, {2})), "[ true, false]\nbool[2] cpu");
}

TEST(Print, AZeroDimensionalTensorHasNoBrackets) {
  EXPECT_EQ(to_string(scalar(2.5)), "2.5000\nf32[] cpu");
  EXPECT_EQ(to_string(scalar(3, {DType::kI32})), "3\ni32[] cpu");
}

TEST(Print, NothingIsAPairOfBracketsWhateverItsShape) {
  EXPECT_EQ(to_string(empty({0})), "[]\nf32[0] cpu");
  EXPECT_EQ(to_string(empty({2, 0, 3})), "[]\nf32[2,0,3] cpu");
  EXPECT_EQ(to_string(empty({int64_t{1} << 50, 0})), "[]\nf32[1125899906842624,0] cpu");
}

TEST(Print, RowsAlignAndMatricesAreSetApart) {
  EXPECT_EQ(to_string(counting({2, 3})), "[[0., 1., 2.],\n [3., 4., 5.]]\nf32[2,3] cpu");
  EXPECT_EQ(to_string(counting({2, 2, 2})),
            "[[[0., 1.],\n  [2., 3.]],\n\n [[4., 5.],\n  [6., 7.]]]\nf32[2,2,2] cpu");
}

TEST(Print, LongRowsBreakBeforeTheEightyFirstColumn) {
  std::istringstream lines(to_string(counting({100})));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_EQ(count, 7 + 1);
}

TEST(Print, MoreThanAThousandElementsAreAbridgedToTheirEdges) {
  EXPECT_EQ(to_string(counting({1001})), "[   0.,    1.,    2., ...,  998.,  999., 1000.]\nf32[1001] cpu");
  const std::string text = to_string(counting({50, 50}));
  EXPECT_NE(text.find("[[   0.,    1.,    2., ...,   47.,   48.,   49.],\n"), std::string::npos) << text;
  EXPECT_NE(text.find(",\n ...,\n ["), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
}

TEST(Print, AThousandElementsAreAllShown) {
  EXPECT_EQ(to_string(counting({1000})).find("..."), std::string::npos);
}

TEST(Print, AViewPrintsItsLogicalOrder) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(to_string(view_as_strided(x, {3, 2}, {1, 3}, 0)),
            "[[0., 3.],\n [1., 4.],\n [2., 5.]]\nf32[3,2] cpu strided");
}

TEST(Print, WaitsForTheDevice) {
  const Device device = Device::parse("cpu:1");
  const Tensor x = empty({1}, {DType::kF32, device});
  Stream::of(device).enqueue([x] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    *x.ptr<float>() = 7;
  });
  EXPECT_EQ(to_string(x), "[7.]\nf32[1] cpu:1");
}

TEST(Print, SixteenBitFloatsPrintTheirValues) {
  EXPECT_EQ(to_string(scalar(0.1, {DType::kBF16})), "0.1001\nbf16[] cpu");
  EXPECT_EQ(to_string(scalar(0.1, {DType::kF16})), "0.1000\nf16[] cpu");
}

TEST(Describe, TellsDtypeShapeDeviceAndLayout) {
  EXPECT_EQ(describe(empty({32, 8, 28, 28})), "f32[32,8,28,28] cpu");
  EXPECT_EQ(describe(empty_channels_last({2, 3, 4, 4}, {DType::kBF16})), "bf16[2,3,4,4] cpu channels-last");
  EXPECT_EQ(describe(view_as_strided(empty({4, 4}), {4, 2}, {4, 2}, 0)), "f32[4,2] cpu strided");
  EXPECT_EQ(describe(empty({3}, {DType::kI64, Device::parse("meta")})), "i64[3] meta");
  EXPECT_EQ(describe(Tensor()), "undefined");
}

TEST(Print, WhatHasNoDataIsDescribed) {
  EXPECT_EQ(to_string(Tensor()), "undefined");
  EXPECT_EQ(to_string(empty({3}, {DType::kF32, Device::parse("meta")})), "f32[3] meta");
}

}  // namespace
}  // namespace gradus
