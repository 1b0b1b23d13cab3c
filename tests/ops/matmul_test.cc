// matmul and linear on the CPU against plain loops in f64: strides, batches, threads, 16-bit floats, errors.
#include "gradus/tensor/ops/linalg/matmul.h"

#include <cmath>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/cpu/linalg/matmul_kernels.h"
#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

// The definition, element by element.
Tensor naive(const Tensor& a, const Tensor& b) {
  Tensor y = empty({a.size(0), b.size(1)}, {DType::kF64, kCPU});
  const auto x = a.to_vector<double>(), w = b.to_vector<double>();
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double s = 0;
      for (int64_t l = 0; l < k; ++l) s += x[i * k + l] * w[l * n + j];
      y.ptr<double>()[i * n + j] = s;
    }
  return y;
}

double tolerance_of(DType t) { return t == DType::kF64 ? 1e-12 : 2e-5; }

class Matmul : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Matmul, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Matmul, ReadsTransposedOperandsInPlace) {
  const Tensor a = raw::transpose(random_tensor({6, 4}, GetParam(), 1), 0, 1);
  const Tensor b = raw::transpose(random_tensor({5, 6}, GetParam(), 2), 0, 1);
  const int64_t before = memory_stats().allocations;
  const Tensor y = raw::matmul(a, b);
  EXPECT_LE(memory_stats().allocations - before, 2);  // the result, at most a scratchpad
  expect_near(y, naive(a, b), tolerance_of(GetParam()));
}

TEST_P(Matmul, ReadsSlicesAndGappedStrides) {
  const Tensor big = random_tensor({8, 10}, GetParam(), 1);
  const Tensor a = raw::narrow(raw::narrow(big, 0, 2, 4), 1, 3, 5);  // rows with gaps
  // No dense dim: copied.
  const Tensor every = raw::slice(random_tensor({5, 12}, GetParam(), 2), 1, 0, 12, 2);
  expect_near(raw::matmul(a, every), naive(a, every), tolerance_of(GetParam()));
}

TEST_P(Matmul, BatchesMayRepeatBothMatrices) {
  const Tensor a = random_tensor({6, 40}, GetParam(), 1), b = random_tensor({40, 7}, GetParam(), 2);
  const auto three_times = [](const Tensor& x) {
    return view_as_strided(x, {3, x.size(0), x.size(1)}, {0, x.size(1), 1}, 0);
  };
  const Tensor y = raw::matmul(three_times(a), three_times(b));
  for (int64_t i = 0; i < 3; ++i) expect_near(raw::select(y, 0, i), naive(a, b), tolerance_of(GetParam()));
}

TEST_P(Matmul, EmptySizes) {
  const TensorOptions o{GetParam(), kCPU};
  EXPECT_EQ(raw::matmul(empty({0, 3}, o), empty({3, 4}, o)).shape(), Shape({0, 4}));
  EXPECT_EQ(raw::matmul(empty({0, 2, 3}, o), empty({3, 4}, o)).shape(), Shape({0, 2, 4}));
  expect_near(raw::matmul(empty({2, 0}, o), empty({0, 3}, o)), tensor(std::vector<double>(6, 0), {2, 3}), 0);
}

TEST_P(Matmul, LinearAddsTheBiasToEveryRow) {
  const Tensor x = random_tensor({2, 3, 4}, GetParam(), 1), w = random_tensor({5, 4}, GetParam(), 2),
               b = random_tensor({5}, GetParam(), 3);
  const Tensor y = raw::linear(x, w, b), plain = raw::linear(x, w);
  ASSERT_EQ(y.shape(), Shape({2, 3, 5}));
  expect_near(raw::reshape(plain, {6, 5}), naive(raw::reshape(x, {6, 4}), raw::transpose(w, 0, 1)),
              tolerance_of(GetParam()));
  const auto with = y.to_vector<double>(), without = plain.to_vector<double>(), bias = b.to_vector<double>();
  for (size_t i = 0; i < with.size(); ++i)
    EXPECT_NEAR(with[i] - without[i], bias[i % 5], tolerance_of(GetParam()));
  EXPECT_EQ(raw::linear(random_tensor({4}, GetParam()), w, b).shape(), Shape({5}));
  EXPECT_EQ(raw::linear(random_tensor({0, 4}, GetParam()), w, b).shape(), Shape({0, 5}));
  const TensorOptions o{GetParam(), kCPU};
  expect_near(raw::linear(empty({2, 0}, o), empty({5, 0}, o), b), raw::contiguous(raw::expand(b, {2, 5})), 0);
}

TEST(MatmulKernel, AgreesWithTheReferenceInF32) {
  const Tensor a = random_tensor({3, 30, 40}, DType::kF32, 1), b = random_tensor({3, 40, 20}, DType::kF32, 2);
  Tensor want = empty({3, 30, 20});
  matmul_reference(want, a, b, {});
  expect_near(raw::matmul(a, b), want, 1e-5);
}

TEST(MatmulKernel, FitsSizesAroundThoseOfSmallProducts) {
  const auto transposed = [](const Tensor& x) {
    return raw::transpose(raw::contiguous(raw::transpose(x, 0, 1)), 0, 1);
  };
  const auto with_gaps = [](const Tensor& x) { return raw::select(raw::stack({x, x}, 2), 2, 0); };
  for (int64_t m : {1, 6, 7, 14, 15, 64, 65})
    for (int64_t k : {1, 2, 31, 64, 65})
      for (int64_t n : {1, 7, 8, 15, 16, 17, 31, 32, 33, 65}) {
        const Tensor a = random_tensor({m, k}, DType::kF32, 1), b = random_tensor({k, n}, DType::kF32, 2);
        const Tensor want = naive(a, b);
        for (const Tensor& left : {a, transposed(a), with_gaps(a)})
          for (const Tensor& right : {b, transposed(b), with_gaps(b)})
            expect_near(raw::matmul(left, right), want, tolerance_of(DType::kF32));
      }
}

// With fewer products than threads, each sum may be split among threads. Sums of small integers are exact.
TEST(MatmulKernel, SumsThousandsByAnyNumberOfThreads) {
  const auto integers = [](const Shape& shape, uint64_t seed) {
    Tensor t = random_tensor(shape, DType::kF64, seed);
    for (int64_t i = 0; i < t.numel(); ++i) t.ptr<double>()[i] = std::round(4 * t.ptr<double>()[i]);
    return t;
  };
  const auto swapped = [](const Tensor& t) { return raw::transpose(t, 1, 2); };
  const int before = num_threads();
  for (int64_t inner : {1000, 2048, 4097}) {
    const Tensor a = integers({3, inner, 21}, 1), b = integers({3, inner, 9}, 2);
    const Tensor row_major = raw::contiguous(swapped(a)), want = raw::matmul(swapped(a), b);
    for (DType t : {DType::kF32, DType::kBF16})
      for (int threads : {1, 2, 4, 8, 32}) {
        set_num_threads(threads);
        const Tensor rounded = raw::to(want, t), right = raw::to(b, t);
        expect_near(raw::matmul(swapped(raw::to(a, t)), right), rounded, 0);
        expect_near(raw::matmul(raw::to(row_major, t), right), rounded, 0);
      }
  }
  set_num_threads(before);
}

TEST(MatmulKernel, SameResultOnAnyCall) {
  const Tensor a = random_tensor({64, 300}), b = random_tensor({300, 70}, DType::kF32, 2);
  EXPECT_EQ(raw::matmul(a, b).to_vector<float>(), raw::matmul(a, b).to_vector<float>());
}

// 16-bit floats: the same sums in f32, rounded once.
class NarrowMatmul : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, NarrowMatmul, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(NarrowMatmul, IsRoundedOnce) {
  const auto exact = [](const Tensor& t) { return raw::to(t, DType::kF64); };
  const auto check = [&](const Tensor& a, const Tensor& b) {
    const Tensor y = raw::matmul(a, b);
    EXPECT_EQ(y.dtype(), GetParam());
    expect_rounded_once(y, raw::matmul(exact(a), exact(b)), double(a.size(-1)));
  };
  const auto random = [](const Shape& s, uint64_t seed) { return random_tensor(s, GetParam(), seed); };
  for (const auto& [m, k, n] :
       {std::array<int64_t, 3>{1, 1, 1}, {1, 7, 5}, {5, 7, 1}, {17, 33, 9}, {64, 100, 65}, {129, 63, 31}}) {
    check(random({m, k}, 1), random({k, n}, 2));
    check(raw::transpose(random({k, m}, 1), 0, 1), raw::transpose(random({n, k}, 2), 0, 1));
  }
  check(random({2, 3, 4}, 1), random({2, 4, 5}, 2));
  check(random({2, 1, 3, 4}, 1), random({6, 4, 5}, 2));
  check(raw::transpose(random({2, 58, 7}, 1), 1, 2), raw::transpose(random({2, 63, 58}, 2), 1, 2));
  check(raw::permute(random({2, 5, 3, 4}, 1), {0, 2, 1, 3}),
        raw::permute(random({2, 5, 3, 4}, 2), {0, 2, 3, 1}));
  check(random({6}, 1), random({6}, 2));
  check(random({2, 0}, 1), random({0, 3}, 2));
  const Tensor wide = raw::narrow(random({8, 10}, 1), 1, 3, 5);  // rows with gaps
  check(wide, random({5, 4}, 2));
}

TEST_P(NarrowMatmul, LinearizRoundedOnce) {
  const auto exact = [](const Tensor& t) { return raw::to(t, DType::kF64); };
  const Tensor x = random_tensor({2, 3, 40}, GetParam(), 1), w = random_tensor({50, 40}, GetParam(), 2),
               b = random_tensor({50}, GetParam(), 3);
  expect_rounded_once(raw::linear(x, w, b), raw::linear(exact(x), exact(w), exact(b)), 41);
  expect_rounded_once(raw::linear(x, w), raw::linear(exact(x), exact(w)), 40);
  const Tensor odd = random_tensor({40, 63}, GetParam(), 1),
               turned = raw::transpose(random_tensor({63, 50}, GetParam(), 2), 0, 1);
  expect_rounded_once(raw::linear(odd, turned, b), raw::linear(exact(odd), exact(turned), exact(b)), 64);
}

TEST(MatmulErrors, NameBothOperands) {
  EXPECT_ERROR(ShapeError, raw::matmul(empty({2, 3}), empty({4, 5})), "[matmul]", "f32[2,3]", "f32[4,5]",
               "3 columns", "4 rows");
  EXPECT_ERROR(ShapeError, raw::matmul(empty({2, 3, 4}), empty({3, 4, 5})), "[matmul]", "f32[2,3,4]",
               "f32[3,4,5]");
  EXPECT_ERROR(ShapeError, raw::matmul(empty({}), empty({4, 5})), "[matmul]", "f32[4,5]");
  EXPECT_ERROR(DTypeError, raw::matmul(empty({2, 3}), empty({3, 5}, {DType::kF64, kCPU})), "f64[3,5]");
  EXPECT_ERROR(DTypeError,
               raw::matmul(empty({2, 3}, {DType::kI64, kCPU}), empty({3, 5}, {DType::kI64, kCPU})), "i64");
  EXPECT_ERROR(DeviceError, raw::matmul(empty({2, 3}), empty({3, 5}, {DType::kF32, Device::parse("cpu:1")})),
               "cpu:1");
  EXPECT_ERROR(ShapeError, raw::linear(empty({2, 3}), empty({4, 5})), "[linear]",
               "weight takes 5 features but x has 3");
  EXPECT_ERROR(ShapeError, raw::linear(empty({2, 3}), empty({4, 3}), empty({3})),
               "bias must have 4 elements");
}

TEST(Linear, NoFeaturesHaveGradients) {
  const auto f = [](const std::vector<Tensor>& v) { return sum(linear(v[0], v[1], v[2])); };
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{4, 3, 0}}) {
    const auto grads = autograd::grad(f, std::vector<Tensor>{empty(shape), empty({2, 0}), full({2}, 1)});
    EXPECT_EQ(grads[0].shape(), shape);
    EXPECT_EQ(grads[1].shape(), (Shape{2, 0}));
    const float rows = shape.size() == 1 ? 1 : shape.size() == 2 ? 3 : 12;
    EXPECT_EQ(grads[2].to_vector<float>(), (std::vector<float>{rows, rows}));
  }
}

TEST(MatmulDevices, MetaHasShapesOnly) {
  const Device meta = Device::parse("meta");
  EXPECT_EQ(
      raw::matmul(empty({1 << 20, 1 << 20}, {DType::kF32, meta}), empty({1 << 20, 3}, {DType::kF32, meta}))
          .shape(),
      Shape({1 << 20, 3}));
}

TEST(MatmulDevices, QueuesOnFurtherCpus) {
  const Device other = Device::parse("cpu:1");
  const Tensor a = random_tensor({20, 30}), b = random_tensor({30, 10}, DType::kF32, 2);
  expect_near(raw::matmul(raw::to(a, other), raw::to(b, other)), raw::matmul(a, b), 1e-6);
}

}  // namespace
}  // namespace gradus
