#include "gradus/autograd/ops/reduce.h"

#include <limits>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/tensor/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Values = std::vector<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor f32(const Values& v, const Shape& shape) { return tensor(v, shape); }

// Every subset of dims as a list.
std::vector<Dims> subsets(int n) {
  std::vector<Dims> all;
  for (int mask = 1; mask < 1 << n; ++mask) {
    Dims dims;
    for (int i = 0; i < n; ++i)
      if (mask >> i & 1) dims.push_back(i);
    all.push_back(dims);
  }
  return all;
}

// The sum over `dims`, kept, one element after another.
std::vector<double> naive_sum(const Tensor& x, const Dims& dims) {
  const std::vector<double> v = x.to_vector<double>();
  Shape kept = x.shape();
  for (int64_t d : dims) kept[static_cast<int>(d)] = 1;
  const Strides strides = row_major_strides(kept);
  std::vector<double> sums(kept.product());
  for (size_t i = 0; i < v.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0;
    for (int d = x.dim() - 1; d >= 0; --d) {
      if (kept[d] != 1) at += rest % x.shape()[d] * strides[d];
      rest /= x.shape()[d];
    }
    sums[at] += v[i];
  }
  return sums;
}

TEST(Reduce, SumsAnyDimsOfAnyLayout) {
  const Tensor x = random_tensor({5, 7, 9, 66});
  for (const Tensor& y : {x, channels_last(x), permute(x, {3, 1, 0, 2}), slice(x, 3, 1, 60, 3),
                          select(x, 1, 2), expand(slice(x, 1, 2, 3), {5, 4, 9, 66})}) {
    for (const Dims& dims : subsets(y.dim())) {
      const std::vector<double> got = sum(y, dims).to_vector<double>(), want = naive_sum(y, dims);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 2e-5 * std::max(1.0, std::abs(want[i])))
            << describe(y) << " over " << dims;
    }
  }
}

TEST(Reduce, ResultsDoNotDependOnThreads) {
  const int before = num_threads();
  for (const Shape& shape : {Shape{1000003}, Shape{700, 1500}, Shape{1500, 3}, Shape{8, 64, 50, 50}}) {
    const Tensor x = random_tensor(shape);
    for (const Dims& dims : subsets(x.dim())) {
      std::vector<Values> sums, norms;
      for (int threads : {1, 2, 3, 5}) {
        set_num_threads(threads);
        sums.push_back(sum(x, dims).to_vector<float>());
        norms.push_back(norm(x, dims).to_vector<float>());
      }
      for (size_t i = 1; i < sums.size(); ++i) {
        EXPECT_EQ(sums[i], sums[0]) << shape << " over " << dims;
        EXPECT_EQ(norms[i], norms[0]) << shape << " over " << dims;
      }
    }
  }
  set_num_threads(before);
}

TEST(Reduce, LongSumsStayAccurate) {
  const int64_t n = 4'000'000;
  Tensor x = empty({n, 1});
  std::fill_n(x.mutable_data<float>(), n, 0.1f);
  const double want = static_cast<double>(0.1f) * n;
  EXPECT_NEAR(sum(x).item<double>(), want, 0.1);  // one by one in f32: wrong by thousands
  EXPECT_NEAR(sum(expand(x, {n, 3}), 0).to_vector<double>()[1], want, 0.1);
  EXPECT_NEAR(mean(x).item<double>(), 0.1f, 3e-8);
}

TEST(Reduce, IntegersSumToI64) {
  const Tensor x = to(f32({1, 0, 1, 1}, {2, 2}), DType::kBool);
  EXPECT_EQ(sum(x).dtype(), DType::kI64);
  EXPECT_EQ(sum(x).item<int64_t>(), 3);
  EXPECT_EQ(sum(to(f32({200, 100}, {2}), DType::kU8)).item<int64_t>(), 300);
  EXPECT_EQ(prod(to(f32({7, 6}, {2}), DType::kI32)).item<int64_t>(), 42);
  EXPECT_EQ(cumsum(x, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 1, 2}));
  EXPECT_THROW(mean(x), DTypeError);
  EXPECT_THROW(norm(x), DTypeError);
  EXPECT_THROW(var(x), DTypeError);
}

TEST(Reduce, SixteenBitFloatsAccumulateWider) {
  const Tensor x = to(f32(Values(3000, 1), {3000}), DType::kBF16);
  EXPECT_EQ(sum(x).dtype(), DType::kBF16);
  EXPECT_EQ(sum(x).item<float>(), 3008);  // 3000 rounded to bf16; adding in bf16 sticks at 256
  EXPECT_EQ(mean(to(x, DType::kF16)).item<float>(), 1);
}

TEST(Reduce, OverNothing) {
  const Tensor x = empty({0, 3});
  EXPECT_EQ(sum(x).item<float>(), 0);
  EXPECT_EQ(prod(x, 0).to_vector<float>(), (Values{1, 1, 1}));
  EXPECT_EQ(sum(x, 1).shape(), Shape{0});
  EXPECT_EQ(amax(x, 1).shape(), Shape{0});
  EXPECT_TRUE(std::isnan(mean(x).item<float>()));
  EXPECT_FALSE(any(x).item<bool>());
  EXPECT_TRUE(all(x).item<bool>());
  EXPECT_EQ(logsumexp(x, {0}).to_vector<float>(), (Values{-kInf, -kInf, -kInf}));
  EXPECT_EQ(norm(x).item<float>(), 0);
  expect_error<ShapeError>([&] { max(x); }, {"[amax]", "no elements", "f32[0,3] cpu"});
  expect_error<ShapeError>([&] { max(x, 0); }, {"[max]", "f32[0,3] cpu"});
  expect_error<ShapeError>([&] { argmin(x); }, {"no elements"});
}

TEST(Reduce, NaNWins) {
  const Tensor x = f32({1, kNaN, 3, 4, 5, 6}, {2, 3});
  EXPECT_TRUE(std::isnan(max(x).item<float>()));
  EXPECT_TRUE(std::isnan(amin(x, 1).to_vector<float>()[0]));
  EXPECT_EQ(argmax(x, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(std::isnan(sum(x).item<float>()));
}

TEST(Reduce, FirstOfEqualsIsTheIndex) {
  const Tensor x = f32({2, 7, 7, 1, 1, 0}, {2, 3});
  const auto [values, indices] = max(x, -1);
  EXPECT_EQ(values.to_vector<float>(), (Values{7, 1}));
  EXPECT_EQ(indices.to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(min(x, 0, true).values.shape(), (Shape{1, 3}));
  EXPECT_EQ(argmax(transpose(x, 0, 1)).item<int64_t>(), 2);  // row-major over the transposed
  EXPECT_EQ(argmax(f32({3}, {})).item<int64_t>(), 0);
  EXPECT_EQ(max(f32({3}, {}), 0).values.item<float>(), 3);
  EXPECT_EQ(argmax(to(x, DType::kI32), 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
}

TEST(Reduce, Norms) {
  const Tensor x = f32({3, -4, 0}, {3});
  EXPECT_FLOAT_EQ(norm(x).item<float>(), 5);
  EXPECT_FLOAT_EQ(norm(x, {}, 1).item<float>(), 7);
  EXPECT_FLOAT_EQ(norm(x, {}, 0).item<float>(), 2);
  EXPECT_FLOAT_EQ(norm(x, {}, INFINITY).item<float>(), 4);
  EXPECT_FLOAT_EQ(norm(x, {}, -INFINITY).item<float>(), 0);
  EXPECT_FLOAT_EQ(norm(x, {}, 3).item<float>(), std::cbrt(27.f + 64.f));
}

TEST(Reduce, VarianceDividesByElementsLessCorrection) {
  const Tensor x = f32({1, 2, 3, 4}, {4});
  EXPECT_FLOAT_EQ(var(x).item<float>(), 5.f / 3);
  EXPECT_FLOAT_EQ(var(x, {}, {.correction = 0}).item<float>(), 1.25f);
  EXPECT_FLOAT_EQ(gradus::std(x).item<float>(), std::sqrt(5.f / 3));
  EXPECT_TRUE(std::isnan(var(f32({1}, {1})).item<float>()));
  EXPECT_NEAR(var(x + 1e4).item<float>(), 5.f / 3, 1e-3);
}

TEST(Reduce, LogSumExpDoesNotOverflow) {
  const Tensor x = f32({1000, 1000, -kInf, -kInf, kInf, 0}, {3, 2});
  const Values y = logsumexp(x, {1}).to_vector<float>();
  EXPECT_FLOAT_EQ(y[0], 1000 + std::log(2.f));
  EXPECT_EQ(y[1], -kInf);
  EXPECT_EQ(y[2], kInf);
}

TEST(Reduce, GradientOfNormAtZeroIsZero) {
  const Tensor x = f32({0, 0, 3, 4}, {2, 2});
  const auto f = [](const Tensor& x) { return norm(x, {1}); };
  EXPECT_EQ(autograd::grad(f, x).to_vector<float>(), (Values{0, 0, 0.6f, 0.8f}));
  const auto g = [&](const Tensor& x) { return square(norm(autograd::grad(f, x), {1}) - 0.5); };
  for (float v : autograd::grad(g, x).to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
  for (double p : {0.0, 0.5, 1.0, 1.5, 3.0})
    for (float v : autograd::grad([&](const Tensor& x) { return norm(x, {1}, p); }, x).to_vector<float>())
      EXPECT_TRUE(std::isfinite(v)) << p;
  const auto s = [](const Tensor& x) { return gradus::std(x, 1); };
  EXPECT_EQ(autograd::grad(s, f32({2, 2}, {1, 2})).to_vector<float>(), (Values{0, 0}));
}

TEST(Reduce, TiesShareTheGradientOfTheFullExtremum) {
  const Tensor x = f32({1, 5, 5, 2}, {2, 2});
  EXPECT_EQ(autograd::grad([](const Tensor& x) { return max(x); }, x).to_vector<float>(),
            (Values{0, 0.5f, 0.5f, 0}));
  const Tensor y = f32({5, 5, 2, 2}, {2, 2});
  const auto along = [](const Tensor& y) { return max(y, 1).values; };
  EXPECT_EQ(autograd::grad(along, y).to_vector<float>(), (Values{1, 0, 1, 0}));
}

TEST(Reduce, GradientOfProdIsRightAtZeros) {
  const auto f = [](const Tensor& x) { return prod(x); };
  EXPECT_EQ(autograd::grad(f, f32({2, 0, 3}, {3})).to_vector<float>(), (Values{0, 6, 0}));
  EXPECT_EQ(autograd::grad(f, f32({0, 0, 3}, {3})).to_vector<float>(), (Values{0, 0, 0}));
  EXPECT_EQ(autograd::grad(f, f32({5}, {1})).to_vector<float>(), Values{1});
}

TEST(Reduce, NamesWhatIsWrongWithDims) {
  const Tensor x = empty({2, 3});
  expect_error<IndexError>([&] { sum(x, 2); }, {"[sum]", "2"});
  expect_error<IndexError>([&] { mean(x, {-3}); }, {"[mean]", "-3"});
  expect_error<ShapeError>([&] { amax(x, {0, -2}); }, {"[amax]", "twice", "f32[2,3] cpu"});
}

}  // namespace
}  // namespace gradus
