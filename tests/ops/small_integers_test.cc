// i8 and i16: arithmetic of all pairs of numbers against int64_t, casts, views, reductions, sorting, scatter,
// printing, files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

// n pseudo-random numbers of T, among them the ends of its range.
template <class T> std::vector<T> numbers(int64_t n, uint64_t key = 1) {
  std::vector<T> v;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t u = (uint64_t(i) + 977 * key) * 0x9E3779B97F4A7C15u;
    v.push_back(i % 11 == 3   ? std::numeric_limits<T>::min()
                : i % 13 == 5 ? std::numeric_limits<T>::max()
                              : T(u >> 40));
  }
  return v;
}

// The same tensor, elements two apart.
Tensor strided(const Tensor& x) {
  return transpose(contiguous(transpose(stack({x, x}, -1), 0, 1)), 0, 1)[{Ellipsis, 0}];
}

template <class T> class SmallIntegers : public testing::Test {
 protected:
  SmallIntegers() { set_num_threads(1); }  // the tensors are small
};
using Types = testing::Types<int8_t, int16_t>;
TYPED_TEST_SUITE(SmallIntegers, Types);

TYPED_TEST(SmallIntegers, ComputeAsNumbersThatWrap) {
  using T = TypeParam;
  using Op = std::function<Tensor(const Tensor&, const Tensor&)>;
  using Number = std::function<int64_t(int64_t, int64_t)>;
  const auto floored = [](int64_t a, int64_t b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
  };
  const std::pair<Op, Number> ops[] = {
      {[](auto& a, auto& b) { return add(a, b); }, [](int64_t a, int64_t b) { return a + b; }},
      {[](auto& a, auto& b) { return sub(a, b); }, [](int64_t a, int64_t b) { return a - b; }},
      {[](auto& a, auto& b) { return mul(a, b); }, [](int64_t a, int64_t b) { return a * b; }},
      {[](auto& a, auto& b) { return add(a, b, 3); }, [](int64_t a, int64_t b) { return a + 3 * b; }},
      {[](auto& a, auto& b) { return floor_divide(a, b); }, floored},
      {[](auto& a, auto& b) { return div(a, b, RoundingMode::kTrunc); },
       [](int64_t a, int64_t b) { return b == 0 ? 0 : a / b; }},
      {[](auto& a, auto& b) { return remainder(a, b); },
       [=](int64_t a, int64_t b) { return b == 0 ? 0 : a - b * floored(a, b); }},
      {[](auto& a, auto& b) { return fmod(a, b); }, [](int64_t a, int64_t b) { return b == 0 ? 0 : a % b; }},
      {[](auto& a, auto& b) { return maximum(a, b); }, [](int64_t a, int64_t b) { return std::max(a, b); }},
      {[](auto& a, auto& b) { return minimum(a, b); }, [](int64_t a, int64_t b) { return std::min(a, b); }},
      {[](auto& a, auto& b) { return bitwise_and(a, b); }, [](int64_t a, int64_t b) { return a & b; }},
      {[](auto& a, auto& b) { return bitwise_xor(a, b); }, [](int64_t a, int64_t b) { return a ^ b; }},
      {[](auto& a, auto& b) { return where(lt(a, b), b, a); },
       [](int64_t a, int64_t b) { return std::max(a, b); }},
      {[](auto& a, auto&) { return neg(a); }, [](int64_t a, int64_t) { return -a; }},
      {[](auto& a, auto&) { return abs(a); }, [](int64_t a, int64_t) { return std::abs(a); }},
      {[](auto& a, auto&) { return square(a); }, [](int64_t a, int64_t) { return a * a; }},
      {[](auto& a, auto&) { return clamp(a, -5, 9); },
       [](int64_t a, int64_t) { return std::clamp<int64_t>(a, -5, 9); }},
      {[](auto& a, auto&) { return bitwise_not(a); }, [](int64_t a, int64_t) { return ~a; }},
      {[](auto& a, auto&) { return a * 7 - 300; },
       [](int64_t a, int64_t) { return int64_t(T(T(a * 7) - T(300))); }},
  };
  // Every pair of i8; as many of i16.
  std::vector<T> u, v = numbers<T>(1 << 16, 2);
  for (int64_t i = 0; i < 1 << 16; ++i) u.push_back(sizeof(T) == 1 ? T(i) : T(i * 40503));
  if (sizeof(T) == 1)
    for (int64_t i = 0; i < 1 << 16; ++i) v[size_t(i)] = T(i >> 8);
  const Tensor a = tensor(u, {256, 256}), b = tensor(v, {256, 256});
  int which = 0;
  for (const auto& [op, number] : ops) {
    for (const Tensor& y :
         {op(a, b), op(transpose(a, 0, 1), transpose(b, 0, 1)), op(strided(a), strided(b))}) {
      ASSERT_EQ(y.dtype(), dtype_v<T>) << which;
    }
    const std::vector<int32_t> y = op(a, b).template to_vector<int32_t>(),
                               z = transpose(op(transpose(a, 0, 1), strided(transpose(b, 0, 1))), 0, 1)
                                       .template to_vector<int32_t>();
    for (size_t i = 0; i < u.size(); ++i) {
      const T expected = T(number(u[i], v[i]));
      ASSERT_EQ(y[i], expected) << "op " << which << " of " << int(u[i]) << " and " << int(v[i]);
      ASSERT_EQ(z[i], expected) << "op " << which << ", strided, of " << int(u[i]) << " and " << int(v[i]);
    }
    ++which;
  }
  EXPECT_EQ(div(a, b).dtype(), DType::kF32);
  EXPECT_EQ(exp(a).dtype(), DType::kF32);
  EXPECT_EQ((a * 0.5).dtype(), DType::kF32);
  EXPECT_EQ(eq(a, b).dtype(), DType::kBool);
}

TYPED_TEST(SmallIntegers, AreCastFromAndToEveryDType) {
  using T = TypeParam;
  const std::vector<T> v = numbers<T>(300);
  const Tensor x = tensor(v, {300});
  EXPECT_EQ(describe(x), std::string(name_of(dtype_v<T>)) + "[300] cpu");
  for (DType t : {DType::kF64, DType::kF32, DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8}) {
    const std::vector<double> y = to(x, t).template to_vector<double>();
    for (size_t i = 0; i < v.size(); ++i) {
      const double expected = t == DType::kI8   ? double(int8_t(v[i]))
                              : t == DType::kU8 ? double(uint8_t(v[i]))
                                                : double(v[i]);
      ASSERT_EQ(y[i], expected) << name_of(t);
    }
    if (!is_floating(t) && size_of(t) < int64_t(sizeof(T))) continue;
    EXPECT_TRUE(equal(to(to(x, t), dtype_v<T>), x)) << name_of(t);
  }
  EXPECT_EQ(to(tensor({300, -1, 65535}), dtype_v<T>).template to_vector<int32_t>(),
            (std::vector<int32_t>{T(300), -1, -1}));
  EXPECT_EQ(to(tensor({2.9, -2.9}), dtype_v<T>).template to_vector<int32_t>(), (std::vector<int32_t>{2, -2}));
  EXPECT_EQ(to(x, DType::kBool).template to_vector<int32_t>(), ne(x, 0).template to_vector<int32_t>());
  EXPECT_EQ(scalar(-7, {.dtype = dtype_v<T>}).template item<int>(), -7);
}

TYPED_TEST(SmallIntegers, AreViewedIndexedAndPrinted) {
  using T = TypeParam;
  std::vector<T> memory = {1, -2, 3, -4, 5, 100};
  int released = 0;
  {
    const Tensor x = from_blob(memory.data(), {2, 3}, {.dtype = dtype_v<T>}, [&] { ++released; });
    EXPECT_EQ(x.template data<T>(), memory.data());
    EXPECT_EQ(Tensor(x[{1, Slice(0, 2)}]).template to_vector<int>(), (std::vector<int>{-4, 5}));
    EXPECT_EQ(Tensor(x[gt(x, 0)]).template to_vector<int>(), (std::vector<int>{1, 3, 5, 100}));
    EXPECT_EQ(index_select(x, 1, tensor({2, 0})).template to_vector<int>(),
              (std::vector<int>{3, 1, 100, -4}));
    EXPECT_EQ(flip(transpose(x, 0, 1), {0}).template to_vector<int>(),
              (std::vector<int>{3, 100, -2, 5, 1, -4}));
    EXPECT_EQ(pad(x, {1, 0}, {.value = -9}).template to_vector<int>(),
              (std::vector<int>{-9, 1, -2, 3, -9, -4, 5, 100}));
    EXPECT_THROW(pad(x, {1, 0}, {.value = 40000}), ValueError);
    const std::string text = to_string(x);
    for (const char* part : {" -2", "100", sizeof(T) == 1 ? "i8[2,3]" : "i16[2,3]"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
    Tensor y = clone(x);
    y[{0, 1}] = 77;
    add_(y, tensor(std::vector<T>{1, 1, 100}, {3}));
    EXPECT_EQ(y.template to_vector<int>(), (std::vector<int>{2, 78, 103, -3, 6, T(200)}));
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(cat({tensor(memory, {6}), tensor(std::vector<uint8_t>{200}, {1})}, 0).dtype(), DType::kI16);
}

TYPED_TEST(SmallIntegers, AreReducedSortedAndPutInPlaces) {
  using T = TypeParam;
  // Sizes around lanes, tiles and segments.
  for (int64_t rows : {1, 2, 7, 33})
    for (int64_t columns : {1, 3, 15, 16, 17, 63, 65, 511, 513, 1023, 1025, 1041, 4099}) {
      const std::vector<T> v = numbers<T>(rows * columns, uint64_t(columns));
      const Tensor x = tensor(v, {rows, columns});
      const std::string where = concat(rows, " x ", columns);
      const auto at = [&](int64_t r, int64_t c) { return int64_t(v[size_t(r * columns + c)]); };
      const auto ints = [](const Tensor& t) { return t.template to_vector<int64_t>(); };
      std::vector<int64_t> sums(columns), most(columns, INT64_MIN), least(columns, INT64_MAX), place(columns),
          total(1);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          const size_t k = size_t(c);
          sums[k] += at(r, c), total[0] += at(r, c), least[k] = std::min(least[k], at(r, c));
          if (at(r, c) > most[k]) most[k] = at(r, c), place[k] = r;
        }
      ASSERT_EQ(ints(sum(x, 0)), sums) << where;
      ASSERT_EQ(ints(sum(transpose(x, 0, 1), 1)), sums) << where;
      ASSERT_EQ(ints(sum(x)), total) << where;
      ASSERT_EQ(sum(x).dtype(), DType::kI64);
      ASSERT_EQ(ints(amax(x, 0)), most) << where;
      ASSERT_EQ(ints(amin(x, 0)), least) << where;
      ASSERT_EQ(amax(x, 0).dtype(), dtype_v<T>);
      ASSERT_EQ(ints(argmax(x, 0)), place) << where;
      ASSERT_EQ(ints(max(x, 0).values), most) << where;
      std::vector<int64_t> running, in_order;
      for (int64_t r = 0; r < rows; ++r) {
        int64_t so_far = 0;
        std::vector<int64_t> line;
        for (int64_t c = 0; c < columns; ++c) running.push_back(so_far += at(r, c)), line.push_back(at(r, c));
        std::sort(line.begin(), line.end());
        in_order.insert(in_order.end(), line.begin(), line.end());
      }
      ASSERT_EQ(ints(cumsum(x, 1)), running) << where;
      const auto [values, indices] = sort(x, {.dim = 1});
      ASSERT_EQ(ints(values), in_order) << where;
      ASSERT_EQ(ints(gather(x, 1, indices)), in_order) << where;
      // Each element is added to column c % 5.
      std::vector<T> added(5 * size_t(rows));
      std::vector<int64_t> to;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          T& place_of = added[size_t(5 * r + c % 5)];
          place_of = T(place_of + at(r, c)), to.push_back(c % 5);
        }
      const Tensor none = zeros({rows, 5}, {.dtype = dtype_v<T>});
      ASSERT_EQ(scatter_add(none, 1, tensor(to, {rows, columns}), x).template to_vector<int>(),
                std::vector<int>(added.begin(), added.end()))
          << where;
    }
  const Tensor x = tensor(std::vector<T>{3, -1, 3, 0, -1}, {5});
  EXPECT_EQ(unique(x).values.template to_vector<int>(), (std::vector<int>{-1, 0, 3}));
  EXPECT_EQ(topk(x, 2).indices.template to_vector<int>(), (std::vector<int>{0, 2}));
  EXPECT_EQ(prod(x[{Slice(0, 3)}]).template item<int>(), -9);
  EXPECT_EQ(prod(x).dtype(), DType::kI64);
  EXPECT_EQ(count_nonzero(x).template item<int>(), 4);
  EXPECT_TRUE(any(x).template item<bool>());
  EXPECT_FALSE(all(x).template item<bool>());
  EXPECT_EQ(searchsorted(sort(x).values, x).template to_vector<int>(), (std::vector<int>{3, 0, 3, 2, 0}));
  EXPECT_EQ(arange(-3, 4, 2, {.dtype = dtype_v<T>}).template to_vector<int>(),
            (std::vector<int>{-3, -1, 1, 3}));
  EXPECT_EQ(one_hot(tensor({1, 0}), 2, dtype_v<T>).dtype(), dtype_v<T>);
}

TYPED_TEST(SmallIntegers, GoThroughFiles) {
  using T = TypeParam;
  const std::string path =
      std::filesystem::temp_directory_path() / concat("gradus_small_integers_", sizeof(T), ".safetensors");
  const Tensor x = tensor(numbers<T>(77), {7, 11});
  io::save_safetensors(
      path, {{"x", x}, {"across", transpose(x, 0, 1)}, {"none", zeros({0, 3}, {.dtype = dtype_v<T>})}});
  const io::SafetensorsFile file = io::load_safetensors(path);
  EXPECT_EQ(file.at("x").dtype(), dtype_v<T>);
  EXPECT_TRUE(equal(file.at("x"), x));
  EXPECT_TRUE(equal(file.at("across"), transpose(x, 0, 1)));
  EXPECT_EQ(file.at("none").numel(), 0);
  std::filesystem::remove(path);
}

TYPED_TEST(SmallIntegers, AreRefusedWhereNumbersWithFractionsAreNeeded) {
  const Tensor x = ones({2, 2}, {.dtype = dtype_v<TypeParam>});
  const std::string name(name_of(dtype_v<TypeParam>));
  for (const std::function<void()>& call :
       {std::function<void()>([&] { matmul(x, x); }), {[&] { mean(x); }}, {[&] { softmax(x, 1); }}, {[&] {
          addcmul(x, x, x);
        }}}) {
    EXPECT_ERROR(DTypeError, call(), name);
  }
}

}  // namespace
}  // namespace gradus
