// softmax, log_softmax and gumbel_softmax: independence of layouts, threads, other rows; draws; errors.
#include "gradus/autograd/ops/softmax.h"

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
