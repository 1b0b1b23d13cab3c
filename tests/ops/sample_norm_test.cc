// Cases of layer_norm, group_norm and the like that the op table does not have.
#include <limits>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Norm = Tensor (*)(const Tensor&);
Tensor layers(const Tensor& x) { return layer_norm(x, {x.size(-1)}); }
Tensor squares(const Tensor& x) { return rms_norm(x, {x.size(-1)}); }
Tensor groups(const Tensor& x) { return group_norm(x, 2); }
Tensor instances(const Tensor& x) { return instance_norm(x); }
constexpr Norm kAll[] = {&layers, &squares, &groups, &instances};

TEST(SampleNorms, GiveTheSameBitsForAnyNumberOfThreads) {
  set_num_threads(1);
  for (const Shape& s : {Shape{1, 16, 90, 91}, Shape{3, 16, 40, 41}, Shape{9, 16, 30, 30}}) {
    const Tensor x = raw::channels_last(random_tensor(s)), dy = random_tensor(s, DType::kF32, 2);
    for (Norm f : kAll) {
      const auto y = f(x).to_vector<float>();
      const auto dx = autograd::grad(f, x, dy).to_vector<float>();
      for (int threads : {2, 5}) {
        set_num_threads(threads);
        EXPECT_EQ(f(x).to_vector<float>(), y) << threads;
        EXPECT_EQ(autograd::grad(f, x, dy).to_vector<float>(), dx) << threads;
        set_num_threads(1);
      }
    }
  }
}

TEST(SampleNorms, ALargeMeanAndAnOutlierCostFewDigits) {
  for (Norm f : {&layers, &groups, &instances}) {
    Tensor x = raw::to(random_tensor({2, 4, 20, 21}) + 4000.0, DType::kF32);
    expect_near(raw::to(f(x), DType::kF64), f(raw::to(x, DType::kF64)), 1e-6);
    x = random_tensor({2, 4, 20, 21});
    for (int64_t at : {0, 37, 3000}) x.mutable_data<float>()[at] = 3e4f;
    expect_near(raw::to(f(x), DType::kF64), f(raw::to(x, DType::kF64)), 1e-5);
  }
}

TEST(SampleNorms, NaNAndInfinityStayInTheirGroup) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (Norm f : kAll) {
      Tensor x = random_tensor({2, 4, 3, 3});
      const auto clean = f(x).to_vector<float>();
      x.mutable_data<float>()[0] = bad;
      const auto y = f(x).to_vector<float>();
      EXPECT_TRUE(std::isnan(y[0]));
      for (size_t i = y.size() / 2; i < y.size(); ++i) EXPECT_EQ(y[i], clean[i]);  // the other sample
    }
  }
}

TEST(SampleNorms, ImagesLieChannelsLast) {
  const Tensor x = random_tensor({2, 4, 3, 5});
  EXPECT_TRUE(group_norm(x, 2).is_channels_last());
  EXPECT_TRUE(instance_norm(x).is_channels_last());
  EXPECT_TRUE(local_response_norm(x, 3).is_channels_last());
  EXPECT_TRUE(layer_norm(raw::channels_last(x), {5}).is_row_major());
}

TEST(SampleNorms, SixteenBitFloatsTakeF32Parameters) {
  const Tensor x = raw::to(random_tensor({3, 4, 6}), DType::kBF16);
  const Tensor w = random_tensor({6}), v = random_tensor({4});
  expect_near(layer_norm(x, {6}, w), raw::to(layer_norm(raw::to(x, DType::kF32), {6}, w), DType::kBF16), 0);
  expect_near(group_norm(x, 2, v), raw::to(group_norm(raw::to(x, DType::kF32), 2, v), DType::kBF16), 0);
  const auto grads = autograd::grad([&](const std::vector<Tensor>& t) { return layer_norm(t[0], {6}, t[1]); },
                                    {x, w}, raw::to(random_tensor({3, 4, 6}, DType::kF32, 2), DType::kBF16));
  EXPECT_EQ(grads[0].dtype(), DType::kBF16);
  EXPECT_EQ(grads[1].dtype(), DType::kF32);
}

TEST(InstanceNorm, AnEmptyBatchLeavesTheRunningStatistics) {
  const Tensor mean = full({3}, 2), var = full({3}, 5);
  instance_norm(zeros({0, 3, 4}), mean, var);
  EXPECT_EQ(mean.to_vector<float>(), std::vector<float>(3, 2));
  EXPECT_EQ(var.to_vector<float>(), std::vector<float>(3, 5));
}

}  // namespace
}  // namespace gradus
