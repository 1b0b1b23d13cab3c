// Numbers beside tensors: their C++ type decides the result's dtype, their value never does. And
// literals as in PyTorch: nested lists, x += 1, sizes of any integer type, devices by name.
#include "gradus/tensor/base/number.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // not representable as a double

TEST(Number, ADoubleIsAFloatWhateverItsValue) {
  const Tensor x = tensor({1, 2, 3});
  for (const double t : {0.5, 1.0, 2.0}) {
    EXPECT_EQ((x * t).dtype(), DType::kF32) << t;
    EXPECT_EQ(softmax(x * t, 0).dtype(), DType::kF32) << t;
    EXPECT_EQ((x + t).dtype(), DType::kF32);
    EXPECT_EQ((t - x).dtype(), DType::kF32);
    EXPECT_EQ(pow(x, t).dtype(), DType::kF32);
    EXPECT_EQ(where(gt(x, 1), x, t).dtype(), DType::kF32);
    EXPECT_EQ(clamp(x, t).dtype(), DType::kF32);
    EXPECT_EQ(hardtanh(x, -t, t).dtype(), DType::kF32);
    EXPECT_EQ(maximum(x, t).dtype(), DType::kF32);
    EXPECT_EQ(minimum(x, t).dtype(), DType::kF32);
    EXPECT_EQ(remainder(x, t).dtype(), DType::kF32);
    EXPECT_EQ(fmod(x, t).dtype(), DType::kF32);
    EXPECT_EQ(floor_divide(x, t).dtype(), DType::kF32);
    EXPECT_EQ(div(x, t, RoundingMode::kTrunc).dtype(), DType::kF32);
    EXPECT_EQ(pow(t, x).dtype(), DType::kF32);
    EXPECT_EQ(clamp(x, -t, t).dtype(), DType::kF32);
  }
  EXPECT_EQ(clamp(x, -3.0).dtype(), DType::kF32);
  EXPECT_EQ(clamp(x, -3).dtype(), DType::kI64);
  EXPECT_EQ((x * 2).dtype(), DType::kI64);
  EXPECT_EQ((x * 2.f).dtype(), DType::kF32);
  EXPECT_EQ((x * size_t{2}).dtype(), DType::kI64);
  EXPECT_EQ((x * true).dtype(), DType::kI64);
  EXPECT_EQ((eq(x, 1) * true).dtype(), DType::kBool);
  EXPECT_EQ((eq(x, 1) + 1).dtype(), DType::kI64);
  EXPECT_EQ(hardtanh(x, 0, 2).dtype(), DType::kI64);
  EXPECT_EQ((to(x, DType::kF16) * 0.5).dtype(), DType::kF16);
}

TEST(Number, InPlaceItMustNotBeOfAHigherKind) {
  const Tensor x = tensor({1, 2, 3});
  EXPECT_ERROR(DTypeError, add_(x, 1.0), "[add_]", "f32", "i64[3]");
  EXPECT_ERROR(DTypeError, clamp_(x, 0.0, {}), "[clamp_]", "i64[3]");
  EXPECT_ERROR(DTypeError, add(x, x, 2.0), "[add]", "alpha");
  EXPECT_ERROR(DTypeError, mul_(eq(x, 1), 2), "[mul_]", "bool");
  add_(x, 1), clamp_(x, {}, 3);
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{2, 3, 3}));
}

TEST(Number, IntegersBeyond53BitsAreExact) {
  const Tensor zero = zeros({2}, {.dtype = DType::kI64}), no = zeros({2}, {.dtype = DType::kBool});
  const auto is_odd = [](const Tensor& x) {
    return x.to_vector<int64_t>() == std::vector<int64_t>{kOdd, kOdd};
  };
  EXPECT_TRUE(is_odd(zero + kOdd));
  EXPECT_TRUE(is_odd(full({2}, kOdd, {.dtype = DType::kI64})));
  EXPECT_TRUE(is_odd(full_like(zero, kOdd)));
  EXPECT_TRUE(is_odd(masked_fill(zero, logical_not(no), kOdd)));
  EXPECT_TRUE(is_odd(where(no, zero, kOdd)));
  Tensor x = clone(zero);
  fill_(x, kOdd);
  EXPECT_TRUE(is_odd(x));
  EXPECT_FALSE(eq(x, kOdd - 1)[0].item<bool>());
  EXPECT_EQ(scalar(std::numeric_limits<int64_t>::max(), {.dtype = DType::kI64}).item<int64_t>(),
            std::numeric_limits<int64_t>::max());
  EXPECT_ERROR(ValueError, zero + (uint64_t{1} << 63), "[Number]", "9223372036854775808");
  EXPECT_TRUE(is_odd(tensor({kOdd, kOdd})));
  EXPECT_TRUE(is_odd(add(zero, ones({2}, {.dtype = DType::kI64}), kOdd)));
  x = clone(zero);
  add_(x, ones({2}, {.dtype = DType::kI64}), kOdd);
  EXPECT_TRUE(is_odd(x));
  EXPECT_EQ(add(zero, zero, std::numeric_limits<int64_t>::max())[0].item<int64_t>(), 0);
}

TEST(Number, BoundsBeyond53BitsAreExact) {
  constexpr int64_t kEven = int64_t{1} << 53;
  const Tensor x = tensor({kEven, kOdd, kOdd + 1, -kOdd});
  EXPECT_EQ(clamp(x, {}, kOdd).to_vector<int64_t>(), (std::vector<int64_t>{kEven, kOdd, kOdd, -kOdd}));
  EXPECT_EQ(clamp(x, {}, kEven).to_vector<int64_t>(), (std::vector<int64_t>{kEven, kEven, kEven, -kOdd}));
  EXPECT_EQ(clamp(x, kOdd).to_vector<int64_t>(), (std::vector<int64_t>{kOdd, kOdd, kOdd + 1, kOdd}));
  EXPECT_EQ(hardtanh(x, -kEven, kOdd).to_vector<int64_t>(),
            (std::vector<int64_t>{kEven, kOdd, kOdd, -kEven}));
  const Tensor y = clone(x);
  clamp_(y, -kEven, kOdd);
  EXPECT_EQ(y.to_vector<int64_t>(), (std::vector<int64_t>{kEven, kOdd, kOdd, -kEven}));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(clamp(x, kMost).to_vector<int64_t>(), (std::vector<int64_t>(4, kMost)));
  // If the bounds cross, the upper one wins, for integers as for floats.
  EXPECT_EQ(clamp(tensor({0, 4, 9}), 5, 3).to_vector<int64_t>(), (std::vector<int64_t>{3, 3, 3}));
  EXPECT_EQ(clamp(tensor({0.f, 4.f, 9.f}), 5, 3).to_vector<float>(), (std::vector<float>{3, 3, 3}));
}

// What each op does with an integer that the tensor's dtype cannot hold, as in PyTorch
// (tests/golden/ops/number_operands.py). Arithmetic and comparisons keep its low bits, quotients are of the
// number itself, and where the number becomes an element, an exponent or a factor, it is an error.
TEST(Number, IntegersThatDoNotFitAreAsInPyTorch) {
  using Op = Tensor (*)(const Tensor& x, Number n);
  const std::map<std::string, Op> ops = {
      {"add", [](const Tensor& x, Number n) { return x + n; }},
      {"sub", [](const Tensor& x, Number n) { return x - n; }},
      {"rsub", [](const Tensor& x, Number n) { return n - x; }},
      {"mul", [](const Tensor& x, Number n) { return x * n; }},
      {"div", [](const Tensor& x, Number n) { return x / n; }},
      {"rdiv", [](const Tensor& x, Number n) { return n / x; }},
      {"div_trunc", [](const Tensor& x, Number n) { return div(x, n, RoundingMode::kTrunc); }},
      {"floor_divide", [](const Tensor& x, Number n) { return floor_divide(x, n); }},
      {"remainder", [](const Tensor& x, Number n) { return remainder(x, n); }},
      {"fmod", [](const Tensor& x, Number n) { return fmod(x, n); }},
      {"pow", [](const Tensor& x, Number n) { return pow(x, n); }},
      {"rpow", [](const Tensor& x, Number n) { return pow(n, x); }},
      {"add_", [](const Tensor& x, Number n) { return add_(x, n), x; }},
      {"mul_", [](const Tensor& x, Number n) { return mul_(x, n), x; }},
      {"add_alpha", [](const Tensor& x, Number n) { return add(x, x, n); }},
      {"eq", [](const Tensor& x, Number n) { return eq(x, n); }},
      {"ne", [](const Tensor& x, Number n) { return ne(x, n); }},
      {"lt", [](const Tensor& x, Number n) { return lt(x, n); }},
      {"le", [](const Tensor& x, Number n) { return le(x, n); }},
      {"gt", [](const Tensor& x, Number n) { return gt(x, n); }},
      {"ge", [](const Tensor& x, Number n) { return ge(x, n); }},
      {"where",
       [](const Tensor& x, Number n) {
         return where(tensor({true, false}), x, n);
       }},
      {"where_first",
       [](const Tensor& x, Number n) {
         return where(tensor({true, false}), n, x);
       }},
      {"clamp_min", [](const Tensor& x, Number n) { return clamp(x, n); }},
      {"clamp_max", [](const Tensor& x, Number n) { return clamp(x, {}, n); }},
      {"full_like", [](const Tensor& x, Number n) { return full_like(x, n); }},
      {"fill_", [](const Tensor& x, Number n) { return fill_(x, n), x; }},
      {"masked_fill",
       [](const Tensor& x, Number n) {
         return masked_fill(x, tensor({true, false}), n);
       }},
      {"index_fill", [](const Tensor& x, Number n) { return index_fill(x, 0, tensor({0}), n); }},
      {"scatter", [](const Tensor& x, Number n) { return scatter(x, 0, tensor({0}), n); }},
      {"item", [](const Tensor& x, Number n) { return x[{0}] = n, x; }},
  };
  std::ifstream file("tests/golden/ops/number_operands.txt");
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    std::istringstream in(line);
    std::string op, dtype, result;
    int64_t n;
    in >> op >> dtype >> n >> result;
    const DType t = dtype == "u8"    ? DType::kU8
                    : dtype == "i8"  ? DType::kI8
                    : dtype == "i16" ? DType::kI16
                                     : DType::kI32;
    const Tensor x = to(tensor({7, 100}), t);
    ++rows;
    if (result == "error") {
      EXPECT_THROW(ops.at(op)(x, n), ValueError) << line;
      continue;
    }
    double first, second;
    in >> first >> second;
    try {
      const Tensor y = ops.at(op)(x, n);
      EXPECT_EQ(name_of(y.dtype()), result) << line;
      const auto v = y.to_vector<double>();
      EXPECT_FLOAT_EQ(v[0], first) << line;
      EXPECT_FLOAT_EQ(v[1], second) << line;
    } catch (const Error& e) {
      ADD_FAILURE() << line << ": " << e.what();
    }
  }
  EXPECT_GT(rows, 300);
}

TEST(Number, NegativePowersOfU8RoundTowardZero) {
  const Tensor x = to(tensor({0, 1, 7}), DType::kU8);
  EXPECT_EQ(pow(x, -3).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 1, 0}));
}

TEST(Number, MinusTheLeastIntegerIsItself) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ((-Number(kLeast)).integer(), kLeast);
  EXPECT_EQ((-Number(kOdd)).integer(), -kOdd);
  EXPECT_EQ((-Number(true)).integer(), -1);
  EXPECT_EQ((-Number(0.5)).to_double(), -0.5);
}

TEST(Number, AsAnIntegerItIsTheNearest) {
  using Limits = std::numeric_limits<int64_t>;
  EXPECT_EQ(Number(kOdd).to_i64(), kOdd);
  EXPECT_EQ(Number(-2.9).to_i64(), -2);
  EXPECT_EQ(Number(INFINITY).to_i64(), Limits::max());
  EXPECT_EQ(Number(-INFINITY).to_i64(), Limits::min());
  EXPECT_EQ(Number(NAN).to_i64(), 0);
}

TEST(Number, WhereOfTwoNumbersHasTheirDtype) {
  const Tensor c = tensor({true, false});
  EXPECT_EQ(where(c, 1, 0).dtype(), DType::kI64);
  EXPECT_EQ(where(c, 1.0, 0).to_vector<float>(), (std::vector<float>{1, 0}));
}

TEST(Number, OneBoundOfClampIsEnough) {
  const Tensor x = tensor({-1.f, 5.f});
  EXPECT_EQ(clamp(x, None, 2).to_vector<float>(), (std::vector<float>{-1, 2}));
  EXPECT_EQ(clamp(x, {}, 2).to_vector<float>(), (std::vector<float>{-1, 2}));
  EXPECT_EQ(clamp(x, 0).to_vector<float>(), (std::vector<float>{0, 5}));
}

TEST(Literals, ListsInListsAreMatrices) {
  const Tensor x = tensor({{1, 2}, {3, 4}, {5, 6}});
  EXPECT_EQ(describe(x), "i64[3,2] cpu");
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(describe(tensor({{{1.f}, {2.f}}})), "f32[1,2,1] cpu");
  EXPECT_EQ(describe(tensor({1.0})), "f64[1] cpu");
  EXPECT_EQ(describe(tensor({true, false})), "bool[2] cpu");
  EXPECT_EQ(describe(tensor({size_t{1}})), "i64[1] cpu");
  EXPECT_EQ(describe(tensor({{1.0}, {2.0}})), "f64[2,1] cpu");
  EXPECT_EQ(describe(tensor({{1}})), "i64[1,1] cpu");
  EXPECT_EQ(describe(tensor({{{1}}})), "i64[1,1,1] cpu");
  EXPECT_EQ(describe(tensor({{true}, {false}})), "bool[2,1] cpu");
  const Tensor cube = tensor({{{1, 2, 3}, {4, 5, 6}}, {{7, 8, 9}, {10, 11, 12}}});
  EXPECT_EQ(cube.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(cube.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(describe(tensor({{{{{{{{1.f}}}}}}}})), "f32[1,1,1,1,1,1,1,1] cpu");
  EXPECT_EQ(describe(tensor({})), "f32[0] cpu");
  EXPECT_EQ(describe(tensor({{}, {}})), "f32[2,0] cpu");
  EXPECT_EQ(describe(tensor({f16(1.5f)})), "f16[1] cpu");
  EXPECT_ERROR(ShapeError, tensor({{1, 2}, {3}}), "[tensor]", "1", "2");
  EXPECT_ERROR(ShapeError, tensor({{{1, 2}}, {{3}}}), "[tensor]");
  EXPECT_ERROR(ShapeError, tensor({{1, 2}, 3}), "[tensor]", "a list beside a number");
  EXPECT_ERROR(ShapeError, tensor({3, {1, 2}}), "[tensor]", "a list beside a number");
  EXPECT_ERROR(ShapeError, tensor({{{{{{{{{1}}}}}}}}}), "at most 8 dimensions");
}

TEST(Literals, NumbersOfSeveralTypesHaveOneThatHoldsThem) {
  const auto is = [](const Tensor& x, const char* dtype, std::vector<double> values) {
    EXPECT_EQ(to_string(x.dtype()), dtype) << describe(x);
    EXPECT_EQ(x.to_vector<double>(), values);
  };
  is(tensor({1, 2.5}), "f32", {1, 2.5});  // as torch.tensor([1, 2.5])
  is(tensor({2.5, 1}), "f32", {2.5, 1});
  is(tensor({1, 2.5, 0.5}), "f32", {1, 2.5, 0.5});
  is(tensor({2.5, 0.5, 1}), "f32", {2.5, 0.5, 1});
  is(tensor({{1}, {2.5}}), "f32", {1, 2.5});
  is(tensor({{1, 2}, {0.5f, 4}}), "f32", {1, 2, 0.5, 4});
  is(tensor({true, 2}), "i64", {1, 2});
  is(tensor({true, 0.5}), "f32", {1, 0.5});
  is(tensor({1, size_t{2}, int64_t{3}}), "i64", {1, 2, 3});
  is(tensor({1.f, 0.1}), "f64", {1, 0.1});
  is(tensor({{1.f, 0.1}, {0.2, 0.3}}), "f64", {1, 0.1, 0.2, 0.3});
  // NAN is a float and promotes with the other numbers.
  for (const Tensor& x : {tensor({NAN, 0.1}), tensor({0.1, NAN})}) {
    EXPECT_EQ(describe(x), "f64[2] cpu");
    EXPECT_EQ(nansum(x).item<double>(), 0.1);
  }
  EXPECT_EQ(describe(tensor({NAN, 1.f})), "f32[2] cpu");
  EXPECT_EQ(describe(tensor({{NAN, 2.0}, {1.0, 3.0}})), "f64[2,2] cpu");
  EXPECT_EQ(describe(tensor({INFINITY, 1})), "f32[2] cpu");
  EXPECT_ERROR(ValueError, tensor({~uint64_t{0}, 1}), "18446744073709551615");
  EXPECT_ERROR(ValueError, tensor({~uint64_t{0}}), "18446744073709551615");
  const std::initializer_list<double> kept = {0.1, 2};
  is(tensor(kept), "f64", {0.1, 2});
}

TEST(Literals, ShapesMixIntegerTypes) {
  const size_t rows = 2;
  const int columns = 3;
  EXPECT_EQ(zeros({rows, columns, int64_t{4}}).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(zeros(5).shape(), Shape{5});
  EXPECT_EQ(reshape(zeros({rows, columns}), -1).shape(), Shape{6});
  EXPECT_EQ((Size2{rows, columns}), (Size2{2, 3}));
  EXPECT_ERROR(ShapeError, (Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), "at most 8 dimensions, got 9");
}

TEST(Literals, DevicesHaveNames) {
  EXPECT_EQ(Device("cpu:1"), (Device{DeviceType::kCPU, 1}));
  EXPECT_EQ(zeros({2}, {.device = "meta"}).device().type, DeviceType::kMeta);
  EXPECT_EQ(to(zeros({2}), "cpu:1").device(), Device(std::string("cpu:1")));
  EXPECT_ERROR(ValueError, Device("gpu"), "gpu");
  EXPECT_EQ(to_string(DType::kBF16), "bf16");
}

TEST(Literals, ReductionsAndPoolsTakeWhatTheirNeighborsTake) {
  const Tensor x = ones({2, 3, 4, 4});
  EXPECT_EQ(sum(x, 1, {.keepdim = true}).shape(), (Shape{2, 1, 4, 4}));
  EXPECT_EQ(mean(x, {1, 2}, {.keepdim = true}).shape(), (Shape{2, 1, 1, 4}));
  EXPECT_EQ(argmax(x, -1, {.keepdim = true}).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(max(x, 1, {.keepdim = true}).values.shape(), (Shape{2, 1, 4, 4}));
  EXPECT_EQ(max_pool2d(x, 2).shape(), (Shape{2, 3, 2, 2}));
  EXPECT_EQ(avg_pool2d(x, 3, 1, 1).shape(), x.shape());
  EXPECT_EQ(dropout(x, 0.5).shape(), x.shape());
}

TEST(CompoundAssignment, WritesInPlace) {
  Tensor x = tensor({1.f, 2.f});
  const Tensor same = x;
  x += 1;
  x *= tensor({2.f, 3.f});
  x -= 1.0;
  x /= 2;
  EXPECT_EQ(same.to_vector<float>(), (std::vector<float>{1.5, 4}));
  Tensor i = tensor({1, 2});
  i += 1;
  EXPECT_ERROR(DTypeError, i += 0.5, "i64[2]");
  EXPECT_ERROR(ShapeError, x += ones({3, 2}), "[add_]");
}

}  // namespace
}  // namespace gradus
