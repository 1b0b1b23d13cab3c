// Reductions on the CPU: values against plain loops in f64, independence of threads, special values, the
// range and accuracy of norms and std, gradients, errors.
#include "gradus/autograd/ops/reduce.h"

#include <limits>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/parallel.h"
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

// The sum over `dims` with keepdim, element by element.
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

using Columns = std::vector<std::vector<double>>;
Columns columns_of(const Tensor& x) {
  const std::vector<double> v = x.to_vector<double>();
  Columns columns(static_cast<size_t>(x.size(1)));
  for (size_t i = 0; i < v.size(); ++i) columns[i % columns.size()].push_back(v[i]);
  return columns;
}

// Each column reduced by f.
template <class F> std::vector<double> by_column(const Columns& columns, F f) {
  std::vector<double> y;
  for (const std::vector<double>& column : columns) y.push_back(f(column));
  return y;
}

double sum_of(const std::vector<double>& v, double (*f)(double)) {
  double s = 0;
  for (double e : v) s += f(e);
  return s;
}

// More columns than a tile has, and a last tile that is so narrow that several of its rows fit
// into a register.
TEST(Reduce, RowsOfTheLastTileAreAsLongAsAllOthers) {
  using V = std::vector<double>;
  EXPECT_EQ(sum(reshape(arange(64 * 1025.), {64, 1025}), 0).to_vector<float>()[1024], 2131936);
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    for (int64_t columns : {1025, 1032, 1040}) {
      // Between 0.75 and 1.25, so that a product stays small.
      const Tensor x = random_tensor({64, columns}, t, static_cast<uint64_t>(columns)) / 4 + 1;
      const Columns all = columns_of(x);
      const double ulp = t == DType::kF64 ? 0x1p-52 : t == DType::kF32 ? 0x1p-23 : 0x1p-7;
      const auto check = [&](const char* op, const Tensor& y, auto f) {
        const V got = y.to_vector<double>(), want = by_column(all, f);
        ASSERT_EQ(got.size(), want.size());
        for (size_t j = 0; j < got.size(); ++j)
          ASSERT_NEAR(got[j], want[j], 64 * ulp * std::max(1.0, std::abs(want[j])) / (ulp > 1e-3 ? 64 : 1))
              << op << " of " << describe(x) << ", column " << j;
      };
      const auto same = [](double e) { return e; };
      check("sum", sum(x, 0), [=](const V& v) { return sum_of(v, same); });
      check("mean", mean(x, 0), [=](const V& v) { return sum_of(v, same) / 64; });
      check("prod", prod(x, 0), [](const V& v) {
        double p = 1;
        for (double e : v) p *= e;
        return p;
      });
      check("amax", amax(x, 0), [](const V& v) { return *std::max_element(v.begin(), v.end()); });
      check("amin", amin(x, 0), [](const V& v) { return *std::min_element(v.begin(), v.end()); });
      check("norm", norm(x, {0}),
            [](const V& v) { return std::sqrt(sum_of(v, [](double e) { return e * e; })); });
      check("norm 1", norm(x, {0}, 1), [=](const V& v) { return sum_of(v, same); });
      check("norm inf", norm(x, {0}, kInf), [](const V& v) { return *std::max_element(v.begin(), v.end()); });
      check("logsumexp", logsumexp(x, {0}),
            [](const V& v) { return std::log(sum_of(v, [](double e) { return std::exp(e); })); });
      check("var", var(x, {0}, {.correction = 0}), [](const V& v) {
        double mean = 0, squares = 0;
        for (double e : v) mean += e / 64;
        for (double e : v) squares += (e - mean) * (e - mean) / 64;
        return squares;
      });
    }
  }
}

TEST(Reduce, WholeNumbersOfTheLastTileAreCounted) {
  for (int64_t columns : {1025, 1040}) {
    const Tensor x = to(random_tensor({64, columns}) * 3, DType::kI64);  // most are 0
    const auto nonzero = by_column(columns_of(x), [](const std::vector<double>& v) {
      return sum_of(v, [](double e) { return double(e != 0); });
    });
    EXPECT_EQ(count_nonzero(x, 0).to_vector<double>(), nonzero) << columns;
    // Only the last row differs from the rest, and only in every other column.
    Tensor row = arange(static_cast<double>(columns));
    row = to(row - floor(row / 2) * 2, DType::kBool);
    const Tensor none = zeros({63, columns}, {.dtype = DType::kBool});
    const Tensor some = cat({none, reshape(row, {1, columns})}, 0);
    EXPECT_EQ(any(some, 0).to_vector<double>(), row.to_vector<double>()) << columns;
    EXPECT_EQ(all(logical_not(some), 0).to_vector<double>(), logical_not(row).to_vector<double>()) << columns;
    for (DType t : {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8, DType::kBool}) {
      const Tensor v = to(abs(x), t);
      const auto want = by_column(
          columns_of(v), [](const std::vector<double>& c) { return sum_of(c, [](double e) { return e; }); });
      EXPECT_EQ(sum(v, 0).to_vector<double>(), want) << name_of(t) << " " << columns;
    }
  }
}

TEST(Reduce, GradientsOfWhatIsBroadcastOverRowsReachTheLastTile) {
  for (int64_t columns : {1025, 1033, 1040}) {
    const Tensor x = random_tensor({64, 3}), w = random_tensor({columns, 3}, DType::kF32, 2);
    const Tensor scale = random_tensor({64, columns}, DType::kF32, 3), b = zeros({columns});
    const auto want = by_column(columns_of(scale), [](const std::vector<double>& c) {
      return sum_of(c, [](double e) { return e; });
    });
    const auto expect = [&](const Tensor& db, const char* of) {
      const std::vector<double> got = db.to_vector<double>();
      for (size_t j = 0; j < got.size(); ++j) ASSERT_NEAR(got[j], want[j], 1e-4) << of << ", column " << j;
    };
    expect(autograd::grad([&](const Tensor& b) { return sum((scale + b) * scale); }, b), "a sum");
    expect(autograd::grad([&](const Tensor& b) { return sum(linear(x, w, b) * scale); }, b), "a bias");
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
  EXPECT_ERROR(ShapeError, max(x), "[max]", "no elements", "f32[0,3] cpu");
  EXPECT_ERROR(ShapeError, max(x, 0), "[max]", "f32[0,3] cpu");
  EXPECT_ERROR(ShapeError, argmin(x), "[argmin]", "no elements");
  EXPECT_ERROR(ShapeError, argmax(x, 0), "[argmax]", "no elements");
}

TEST(Reduce, IntegersWrap) {
  using V = std::vector<int64_t>;
  const int64_t top = INT64_MAX;
  const Tensor x = tensor(V{top, top, 2, -3, top, 5}, {2, 3});
  EXPECT_EQ(sum(x).item<int64_t>(), -top);
  EXPECT_EQ(sum(x, 0).to_vector<int64_t>(), (V{top - 3, -2, 7}));
  EXPECT_EQ(sum(x, 1).to_vector<int64_t>(), (V{0, -top}));
  EXPECT_EQ(prod(x, 1).to_vector<int64_t>(), (V{2, 14 - top}));
  EXPECT_EQ(cumsum(x, 1).to_vector<int64_t>(), (V{top, -2, 0, -3, top - 3, -top}));
  EXPECT_EQ(cumprod(x, 1).to_vector<int64_t>(), (V{top, 1, 2, -3, 2 - top, 14 - top}));
}

TEST(Reduce, ProductsOfNothingAreRecorded) {
  for (const bool keepdim : {false, true}) {
    const Tensor x = empty({2, 0});
    GradManager gm;
    gm.attach(x);
    auto recording = gm.record();
    const Tensor y = prod(x, 1, keepdim);
    EXPECT_EQ(y.to_vector<float>(), (Values{1, 1}));
    gm.backward(sum(y));
    ASSERT_TRUE(x.grad().defined());
    EXPECT_EQ(x.grad().shape(), (Shape{2, 0}));
  }
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

TEST(Reduce, GradientOfNormIsRightWherePowersLeaveTheDtypesRange) {
  const auto slopes = [](const Tensor& x, double p) {
    return autograd::grad([=](const Tensor& x) { return norm(x, {}, p); }, x).to_vector<double>();
  };
  // Of n elements v the norm is v n^(1/p), and each slope n^(1/p - 1).
  for (double slope : slopes(full({200}, 0.5, {.dtype = DType::kF16}), -1))
    EXPECT_NEAR(slope, 1 / 40000.0, 0x1p-24);
  for (double slope : slopes(full({4}, 1e-3), -12)) EXPECT_NEAR(slope, std::pow(4, -13.0 / 12), 1e-5);
  for (double slope : slopes(full({4}, 1e3), 12)) EXPECT_NEAR(slope, std::pow(4, -11.0 / 12), 1e-5);
}

// Rows of n elements -v and v, and columns: std is v sqrt(n / (n - 1)), its gradient +-1 / sqrt(n (n - 1)).
TEST(Reduce, StdKeepsTheRangeOfItsDtype) {
  struct Case {
    DType dtype;
    double v, tolerance;
  };
  const Case cases[] = {{DType::kF32, 1e20, 1e-5},  {DType::kF32, 3e38, 1e-5},  {DType::kF32, 1e-25, 1e-5},
                        {DType::kF32, 1, 1e-5},     {DType::kF16, 1e4, 4e-3},   {DType::kF16, 1e-3, 4e-3},
                        {DType::kBF16, 1e20, 2e-2}, {DType::kBF16, 1e-25, 2e-2}};
  for (const auto& [dtype, v, tolerance] : cases) {
    for (const int64_t n : {2, 16, 18, 512, 514, 1200}) {
      const Tensor signs = reshape(cat({full({n / 2, 3}, -1.0), full({n / 2, 3}, 1.0)}), {n, 3});
      const Tensor columns = to(to(signs, DType::kF64) * v, dtype),
                   rows = contiguous(transpose(columns, 0, 1));
      const double value = columns.to_vector<double>().back(),
                   want = value * std::sqrt(double(n) / double(n - 1));
      const double slope = 1 / std::sqrt(double(n) * double(n - 1));
      for (const bool along_rows : {false, true}) {
        const auto f = [=](const Tensor& x) { return gradus::std(x, along_rows ? 1 : 0); };
        const auto [y, dx] =
            autograd::value_and_grad(f, along_rows ? rows : columns, ones({3}, {.dtype = dtype}));
        const auto values = y.to_vector<double>(), slopes = dx.to_vector<double>();
        for (size_t i = 0; want < 3.4e38 && i < values.size(); ++i)
          EXPECT_NEAR(values[i] / want, 1, tolerance) << dtype << ' ' << v << ' ' << n;
        for (size_t i = 0; want < 1e38 && i < slopes.size(); ++i)
          EXPECT_NEAR(std::abs(slopes[i]) / slope, 1, 2 * tolerance) << dtype << ' ' << v << ' ' << n;
      }
    }
  }
  EXPECT_EQ(var(f32({1e20f, -1e20f}, {2})).item<float>(), kInf);
  EXPECT_EQ(var(f32({1e-25f, -1e-25f}, {2})).item<float>(), 0);
  EXPECT_TRUE(std::isnan(var(f32({1, kInf}, {2})).item<float>()));
  EXPECT_TRUE(std::isnan(var(f32({1, kNaN}, {2})).item<float>()));
  // Columns of which one alone leaves the range.
  const Tensor mixed = f32({1, 1e20f, 0, 3, -1e20f, 0}, {2, 3});
  expect_near(gradus::std(mixed, 0), f32({1.41421356f, 1.41421356e20f, 0}, {3}), 1e-6);
}

TEST(Reduce, GradientOfVarHasTheDigitsOf16Bits) {
  const Tensor x = tensor({1000.f, 1001.f, 1003.f, 1001.f});
  const auto f = [](const Tensor& x) { return var(x); };
  for (const DType t : {DType::kF16, DType::kBF16}) {
    const Tensor v = to(x, t);
    expect_near(to(autograd::grad(f, v), DType::kF32), autograd::grad(f, to(v, DType::kF32)), 1e-2);
  }
}

TEST(Reduce, GradientOfNormOfSmallF16IsFinite) {
  const Tensor x = full({2}, 0x1p-18, {.dtype = DType::kF16});
  for (const double slope : autograd::grad([](const Tensor& x) { return norm(x); }, x).to_vector<double>())
    EXPECT_NEAR(slope, 0.7071, 1e-2);  // of the subnormal norm, which has few digits
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
  EXPECT_ERROR(IndexError, sum(x, 2), "[sum]", "2");
  EXPECT_ERROR(IndexError, mean(x, {-3}), "[mean]", "-3");
  EXPECT_ERROR(ShapeError, amax(x, {0, -2}), "[amax]", "twice", "f32[2,3] cpu");
}

}  // namespace
}  // namespace gradus
