// reduce_all_into and finish_reduce, which reduce arrays of equal length on the host: for every dtype and op,
// each element has the bits of a plain loop over the inputs in order.
#include "gradus/distributed/base/reduce_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                             DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kAvg, ReduceOp::kBand,    ReduceOp::kBor, ReduceOp::kBxor};

bool is_allowed(ReduceOp op, DType dtype) {
  if (op >= ReduceOp::kBand) return is_integral(dtype);
  return op != ReduceOp::kAvg || dtype != DType::kBool;
}

// The type that reductions of T compute in: f32 for 16-bit floats; unsigned integers, which wrap around.
// clang-format off
template <class T> struct arithmetic { using type = T; };
template <> struct arithmetic<f16> { using type = float; };
template <> struct arithmetic<bf16> { using type = float; };
template <> struct arithmetic<int64_t> { using type = uint64_t; };
template <> struct arithmetic<int32_t> { using type = uint32_t; };
template <> struct arithmetic<int16_t> { using type = uint32_t; };
template <> struct arithmetic<int8_t> { using type = uint32_t; };
template <> struct arithmetic<bool> { using type = int; };
// clang-format on

// One element of the result. Minima and maxima are NaN if any value is.
template <class T> T reference(const std::vector<T>& values, ReduceOp op) {
  using A = typename arithmetic<T>::type;
  using Ordered = std::conditional_t<std::is_integral_v<T>, T, A>;  // signed where T is
  A x = A(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    const A y = A(values[i]);
    const bool nan = std::is_floating_point_v<A> && (x != x || y != y);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        x = std::is_same_v<T, bool> ? A(x || y) : A(x + y);
        break;
      case ReduceOp::kProduct:
        x = A(x * y);
        break;
      case ReduceOp::kMin:
        x = nan ? A(x != x ? x : y) : Ordered(x) < Ordered(y) ? x : y;
        break;
      case ReduceOp::kMax:
        x = nan ? A(x != x ? x : y) : Ordered(x) > Ordered(y) ? x : y;
        break;
      default:
        if constexpr (std::is_integral_v<A>)
          x = op == ReduceOp::kBand ? A(x & y) : op == ReduceOp::kBor ? A(x | y) : A(x ^ y);
    }
  }
  if (op == ReduceOp::kAvg) return T(Ordered(x) / Ordered(values.size()));
  return T(x);
}

template <class T> std::vector<T> random_values(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, bool>)
      values.push_back(random() % 2);
    else if constexpr (std::is_integral_v<T>)
      values.push_back(T(random() % 3 ? random() % 20 : random() * 0x1'0000'0001ull));
    else
      values.push_back(T(random() % 50 == 0 ? NAN : std::normal_distribution<float>(0, 3)(random)));
  }
  return values;
}

// std::vector<bool> has no elements to point to.
template <class T> struct Array {
  explicit Array(const std::vector<T>& values) : size(values.size()), data(new T[size + 1]) {
    std::copy(values.begin(), values.end(), data.get());
  }
  size_t size;
  std::unique_ptr<T[]> data;
};

template <class T>
void expect_reduced(const T* given, const std::vector<std::vector<T>>& inputs, ReduceOp op,
                    const std::string& what) {
  for (size_t i = 0; i < inputs[0].size(); ++i) {
    std::vector<T> values;
    for (const auto& input : inputs) values.push_back(input[i]);
    const T expected = reference<T>(values, op);
    const bool both_nan = given[i] != given[i] && expected != expected;
    ASSERT_TRUE(both_nan || std::memcmp(&given[i], &expected, sizeof(T)) == 0)
        << what << " at " << i << ": " << double(given[i]) << ", not " << double(expected);
  }
}

TEST(ReduceOp, ReduceAllIntoIsRightForAllDtypesOpsAndLengths) {
  for (const DType dtype : kDTypes)
    for (const ReduceOp op : kOps)
      for (const int count : {1, 2, 3, 4, 8})
        for (const int64_t n : {0, 1, 7, 1000, 2051}) {
          if (!is_allowed(op, dtype)) continue;
          dispatch_all(dtype, [&]<class T>() {
            std::vector<std::vector<T>> values;
            std::vector<Array<T>> inputs;
            std::vector<const void*> pointers;
            for (int i = 0; i < count; ++i) values.push_back(random_values<T>(n, 100 * i + unsigned(op)));
            for (const auto& one : values) inputs.emplace_back(one);
            for (const auto& one : inputs) pointers.push_back(one.data.get());
            const std::string what = concat(name_of(op), " of ", count, " x ", n, ' ', name_of(dtype));
            Array<T> out(std::vector<T>(n, T(1)));
            out.data[n] = T(0);
            reduce_all_into(out.data.get(), pointers.data(), count, n, dtype, op);
            expect_reduced<T>(out.data.get(), values, op, what);
            EXPECT_EQ(float(out.data[n]), 0.f) << what << " writes beyond its end";
            // In place, into the last input.
            T* const last = inputs[count - 1].data.get();
            reduce_all_into(last, pointers.data(), count, n, dtype, op);
            expect_reduced<T>(last, values, op, what + " into the last");
          });
        }
}

TEST(ReduceOp, TheOutputMayBeAnyOfTheInputs) {
  for (int count = 1; count <= 5; ++count)
    for (int into = 0; into < count; ++into) {
      std::vector<std::vector<int32_t>> values;
      for (int i = 0; i < count; ++i) values.push_back(random_values<int32_t>(3000, i));
      std::vector<std::vector<int32_t>> inputs = values;
      std::vector<const void*> pointers;
      for (const auto& one : inputs) pointers.push_back(one.data());
      reduce_all_into(inputs[into].data(), pointers.data(), count, 3000, DType::kI32, ReduceOp::kSum);
      expect_reduced<int32_t>(inputs[into].data(), values, ReduceOp::kSum, concat(into, " of ", count));
    }
}

// A mean over several hosts is sent as a sum and divided at the end, here by 3.
TEST(ReduceOp, FinishReduceDividesForTheMeanAlone) {
  for (const DType dtype : kDTypes)
    for (const ReduceOp op : kOps) {
      if (!is_allowed(op, dtype)) continue;
      dispatch_all(dtype, [&]<class T>() {
        const Array<T> sums(random_values<T>(2051, 1)), finished(random_values<T>(2051, 1));
        finish_reduce(finished.data.get(), 2051, dtype, op, 3);
        for (int64_t i = 0; i < 2051; ++i) {
          const T sum = sums.data[i], given = finished.data[i];
          using A = std::conditional_t<std::is_integral_v<T>, T, typename arithmetic<T>::type>;
          const T expected = op == ReduceOp::kAvg ? T(A(sum) / A(3)) : sum;
          ASSERT_TRUE((given != given && expected != expected) || given == expected)
              << name_of(op) << " of " << name_of(dtype) << " at " << i;
        }
      });
    }
}

TEST(ReduceOp, SixteenBitFloatsAreRoundedOnce) {
  // 256 + 1 is 256 in bf16, 2048 + 1 is 2048 in f16: adding the ones one by one would lose them.
  std::vector<bf16> large(30, bf16(256.f)), one(30, bf16(1.f));
  const void* inputs[] = {large.data(), one.data(), one.data()};
  std::vector<bf16> sum(30);
  reduce_all_into(sum.data(), inputs, 3, 30, DType::kBF16, ReduceOp::kSum);
  for (const bf16 x : sum) EXPECT_EQ(float(x), 258.f);

  std::vector<f16> large16(30, f16(2048.f)), one16(30, f16(1.f)), sum16(30);
  const void* inputs16[] = {large16.data(), one16.data(), one16.data()};
  reduce_all_into(sum16.data(), inputs16, 3, 30, DType::kF16, ReduceOp::kSum);
  for (const f16 x : sum16) EXPECT_EQ(float(x), 2050.f);
}

TEST(ReduceOp, AveragesOfIntegersAreTruncatedTowardZero) {
  std::vector<int64_t> a = {-3, 3, -4, 7}, b = {0, 0, -1, 0};
  const void* inputs[] = {a.data(), b.data()};
  reduce_all_into(a.data(), inputs, 2, 4, DType::kI64, ReduceOp::kAvg);
  EXPECT_EQ(a, (std::vector<int64_t>{-1, 1, -2, 3}));
}

TEST(ReduceOp, AveragesOfBytesDivideByMoreRanksThanAByteHolds) {
  std::vector<uint8_t> sums = {0, 255};
  finish_reduce(sums.data(), 2, DType::kU8, ReduceOp::kAvg, 256);
  EXPECT_EQ(sums, (std::vector<uint8_t>{0, 0}));
  std::vector<int8_t> negative = {-128, 127};
  finish_reduce(negative.data(), 2, DType::kI8, ReduceOp::kAvg, 128);
  EXPECT_EQ(negative, (std::vector<int8_t>{-1, 0}));
}

TEST(ReduceOp, NamesAndWhatIsRefused) {
  EXPECT_EQ(name_of(ReduceOp::kMean), "avg");
  EXPECT_EQ(name_of(ReduceOp::kBxor), "bxor");
  EXPECT_EQ(name_of(static_cast<ReduceOp>(77)), "unknown");
  for (const DType dtype : kDTypes)
    for (const ReduceOp op : kOps) {
      if (is_allowed(op, dtype))
        EXPECT_NO_THROW(check_reduce_op("all_reduce", op, dtype));
      else
        EXPECT_THROW(check_reduce_op("all_reduce", op, dtype), DTypeError);
    }
  EXPECT_EQ(error_of([] { check_reduce_op("all_reduce", ReduceOp::kBand, DType::kF32); }),
            "[all_reduce] band is for integers and bool, got f32");
}

}  // namespace
}  // namespace gradus::dist
