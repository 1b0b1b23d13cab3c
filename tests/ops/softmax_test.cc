#include "gradus/autograd/ops/softmax.h"

#include <limits>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/random.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Softmax, MatchesTheDefinitionInF64OverAnyDim) {
  for (const Shape& shape : {Shape{7, 10}, Shape{5, 31}, Shape{5, 32}, Shape{5, 47}, Shape{3, 129},
                             Shape{3, 1000}, Shape{2, 5, 3, 4}, Shape{4, 3, 300}, Shape{1}, Shape{}}) {
    const Tensor x = random_tensor(shape, DType::kF64);
    for (int dim = 0; dim < std::max(x.dim(), 1); ++dim) {
      const Tensor y = softmax(x, dim);
      Tensor want = empty(shape, {.dtype = DType::kF64});
      const int64_t n = x.dim() ? x.size(dim) : 1, step = x.dim() ? x.stride(dim) : 1;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const int64_t first = i - (n == 1 ? 0 : i / step % n * step);
        double total = 0;
        for (int64_t j = 0; j < n; ++j) total += std::exp(x.ptr<double>()[first + (n == 1 ? 0 : j * step)]);
        want.ptr<double>()[i] = std::exp(x.ptr<double>()[i]) / total;
      }
      expect_near(y, want, 1e-14);
      expect_near(softmax(to(x, DType::kF32), dim), want, 1e-6);
      expect_near(softmax(to(x, DType::kBF16), dim), want, 1e-2);
      for (int64_t i = 0; i < x.numel(); ++i) want.ptr<double>()[i] = std::log(want.ptr<double>()[i]);
      expect_near(log_softmax(x, dim), want, 1e-13);
      expect_near(log_softmax(to(x, DType::kF32), dim), want, 2e-6);
    }
  }
}

TEST(Softmax, TakesAnyLayout) {
  const Tensor x = random_tensor({2, 6, 5, 7});
  for (int dim = 0; dim < 4; ++dim) {
    const Tensor want = log_softmax(x, dim), got = log_softmax(channels_last(x), dim);
    EXPECT_TRUE(got.is_channels_last());
    expect_near(got, want, 1e-6);
    expect_near(softmax(transpose(x, 1, 3), dim), softmax(contiguous(transpose(x, 1, 3)), dim), 0);
    const Tensor dy = random_tensor(x.shape(), DType::kF32, 2);
    expect_near(log_softmax_backward(dy, got, dim), log_softmax_backward(dy, want, dim), 2e-6);
    expect_near(softmax_backward(channels_last(dy), softmax(x, dim), dim),
                softmax_backward(dy, softmax(x, dim), dim), 0);
  }
}

TEST(Softmax, LargeAndInfiniteScores) {
  const Tensor x = tensor(std::vector<float>{1e30f, -1e30f, 1e4f, 1e4f, 0, -kInf}, {3, 2});
  EXPECT_EQ(softmax(x, 1).to_vector<float>(), (std::vector<float>{1, 0, .5f, .5f, 1, 0}));
  const std::vector<float> y = log_softmax(x, 1).to_vector<float>();
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], -2e30f);
  EXPECT_FLOAT_EQ(y[2], -std::log(2.f));
  EXPECT_EQ(y[5], -kInf);
}

TEST(Softmax, DoesNotDependOnThreads) {
  const Tensor x = random_tensor({300, 1000});
  const int before = num_threads();
  for (int dim : {0, 1}) {
    set_num_threads(1);
    const auto one = log_softmax(x, dim).to_vector<float>();
    for (int threads : {2, 3}) {
      set_num_threads(threads);
      EXPECT_EQ(log_softmax(x, dim).to_vector<float>(), one);
    }
  }
  set_num_threads(before);
}

TEST(Softmax, ARowDoesNotDependOnTheRowsBesideIt) {
  for (int64_t n : {1, 11, 16, 31, 32, 33, 128, 129}) {
    const Tensor x = random_tensor({37, n}), dy = random_tensor({37, n}, DType::kF32, 2);
    const Tensor y = softmax(x, 1), log_y = log_softmax(x, 1);
    const Tensor dx = softmax_backward(dy, y, 1), log_dx = log_softmax_backward(dy, log_y, 1);
    for (int64_t i = 0; i < x.size(0); ++i) {
      const auto row = [&](const Tensor& t) { return narrow(t, 0, i, 1); };
      EXPECT_EQ(softmax(row(x), 1).to_vector<float>(), row(y).to_vector<float>()) << n;
      EXPECT_EQ(log_softmax(row(x), 1).to_vector<float>(), row(log_y).to_vector<float>()) << n;
      EXPECT_EQ(softmax_backward(row(dy), row(y), 1).to_vector<float>(), row(dx).to_vector<float>()) << n;
      EXPECT_EQ(log_softmax_backward(row(dy), row(log_y), 1).to_vector<float>(),
                row(log_dx).to_vector<float>())
          << n;
    }
  }
}

TEST(Softmax, EmptyAndWrong) {
  EXPECT_EQ(softmax(empty({0, 3}), 1).shape(), (Shape{0, 3}));
  EXPECT_EQ(softmax(empty({3, 0}), 1).shape(), (Shape{3, 0}));
  EXPECT_ERROR(IndexError, softmax(empty({2, 3}), 2), "[softmax]", "2");
  EXPECT_ERROR(DTypeError, log_softmax(tensor({1, 2}), 0), "[log_softmax]", "i64[2] cpu");
  EXPECT_ERROR(ShapeError, softmax_backward(empty({2}), empty({3}), 0), "f32[2]", "f32[3]");
}

TEST(Softmax, GradientOfARowSumsToZero) {
  const Tensor x = random_tensor({4, 9}, DType::kF64), dy = random_tensor({4, 9}, DType::kF64, 2);
  for (int dim : {0, 1}) {
    const Tensor dx = autograd::grad([&](const Tensor& x) { return log_softmax(x, dim); }, x, dy);
    for (double v : sum(dx, dim).to_vector<double>()) EXPECT_NEAR(v, 0, 1e-13);
  }
}

TEST(GumbelSoftmax, DrawsClassesAsOftenAsSoftmaxSays) {
  const Tensor logits = tensor<double>({0, 1, 2}, {3});
  const Tensor draws = gumbel_softmax(expand(logits, {20000, 3}), {.hard = true});
  expect_near(sum(draws, -1), ones({20000}, {.dtype = DType::kF64}), 1e-12);
  expect_near(mean(draws, 0), softmax(logits, 0), 0.015);
  const Tensor soft = gumbel_softmax(expand(logits, {50, 3}), {.tau = 0.5});
  expect_near(sum(soft, -1), ones({50}, {.dtype = DType::kF64}), 1e-12);
}

TEST(GumbelSoftmax, HardDrawsHaveTheGradientOfSoftOnes) {
  const Tensor x = random_tensor({4, 5}, DType::kF64), w = random_tensor({4, 5}, DType::kF64);
  const auto gradient = [&](bool hard) {
    manual_seed(3);
    return autograd::grad([&](const Tensor& v) { return sum(gumbel_softmax(v, {.hard = hard}) * w); }, x);
  };
  expect_near(gradient(true), gradient(false), 1e-15);
}

TEST(GumbelSoftmax, SaysWhatItCannotTake) {
  EXPECT_THROW(gumbel_softmax(ones({2}), {.tau = 0}), ValueError);
  EXPECT_THROW(gumbel_softmax(ones({2}), {.dim = 1}), IndexError);
  EXPECT_THROW(gumbel_softmax(tensor({1, 2})), DTypeError);
}

}  // namespace
}  // namespace gradus
