// Autocast to bf16 and f16: the dtype of each kind of op and of gradients, and the lifetime of cached casts
// of parameters. References are the op on operands cast by hand, or the same in f32 within bf16's rounding.
#include "gradus/autograd/graph/autocast.h"

#include <cmath>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {
namespace {

using testing::HasSubstr;

struct AutocastTest : testing::Test {
  AutocastTest() { manual_seed(1); }
  // Runs f in a recording and sets the gradients of its sum.
  void backward(const std::vector<Tensor>& leaves, const std::function<Tensor()>& f) {
    GradManager gm;
    gm.attach(leaves);
    auto recording = gm.record();
    const Tensor y = f();
    gm.backward(sum(to(y, DType::kF32)));
  }
  Tensor x = randn({4, 8}), w = randn({16, 8}), b = randn({16});
  Tensor image = randn({2, 3, 8, 8}), filter = randn({4, 3, 3, 3});
};

TEST_F(AutocastTest, CastsProductsAndNothingOutsideOfTheScope) {
  {
    auto amp = autocast(DType::kBF16);
    EXPECT_EQ(linear(x, w, b).dtype(), DType::kBF16);
    EXPECT_EQ(matmul(x, transpose(w, 0, 1)).dtype(), DType::kBF16);
    EXPECT_EQ(conv2d(image, filter).dtype(), DType::kBF16);
    EXPECT_EQ((x + x).dtype(), DType::kF32);
    EXPECT_EQ(relu(linear(x, w, b)).dtype(), DType::kBF16);
  }
  EXPECT_EQ(linear(x, w, b).dtype(), DType::kF32);
}

TEST_F(AutocastTest, GivesTheValueOfTheOpOnCastOperands) {
  const auto low = [](const Tensor& t) { return to(t, DType::kBF16); };
  const Tensor by_hand = linear(low(x), low(w), low(b));
  auto amp = autocast(DType::kBF16);
  EXPECT_EQ(linear(x, w, b).to_vector<float>(), by_hand.to_vector<float>());
  EXPECT_EQ(linear(x, w, b).to_vector<float>(), by_hand.to_vector<float>());  // from the cached casts
}

TEST_F(AutocastTest, WorksInF16AndLeavesF64Alone) {
  auto amp = autocast(DType::kF16);
  EXPECT_EQ(linear(x, w, b).dtype(), DType::kF16);
  const Tensor wide = to(x, DType::kF64);
  EXPECT_EQ(matmul(wide, transpose(wide, 0, 1)).dtype(), DType::kF64);
  EXPECT_EQ(softmax(wide, 1).dtype(), DType::kF64);
}

TEST_F(AutocastTest, ComputesSoftmaxAndLossesInF32) {
  auto amp = autocast(DType::kBF16);
  const Tensor logits = linear(x, w, b);
  EXPECT_EQ(softmax(logits, 1).dtype(), DType::kF32);
  EXPECT_EQ(sum(logits).dtype(), DType::kF32);
  EXPECT_EQ(cross_entropy(logits, zeros({4}, {.dtype = DType::kI64})).dtype(), DType::kF32);
}

TEST_F(AutocastTest, JoinsInTheWidestDtype) {
  auto amp = autocast(DType::kBF16);
  const Tensor low = linear(x, w, b);
  EXPECT_EQ(cat({low, zeros({4, 16})}, 1).dtype(), DType::kF32);
  EXPECT_EQ(cat({low, low}, 1).dtype(), DType::kBF16);
  EXPECT_EQ(stack({zeros({4, 16}), low}).dtype(), DType::kF32);
}

TEST_F(AutocastTest, BatchNormTakes16BitsWithParametersInF32) {
  const Tensor scale = rand({4}), shift = randn({4}), mean = zeros({4}), var = ones({4});
  backward({filter, scale, shift}, [&] {
    auto amp = autocast(DType::kBF16);
    const Tensor y = batch_norm(conv2d(image, filter), scale, shift, mean, var, {.training = true});
    EXPECT_EQ(y.dtype(), DType::kBF16);
    return relu(y);
  });
  EXPECT_EQ(scale.grad().dtype(), DType::kF32);
  EXPECT_EQ(shift.grad().dtype(), DType::kF32);
  EXPECT_EQ(filter.grad().dtype(), DType::kF32);
}

TEST_F(AutocastTest, GradientsArriveInTheDtypeOfTheParameter) {
  backward({x, w, b}, [&] {
    auto amp = autocast(DType::kBF16);
    return linear(x, w, b);
  });
  for (const Tensor& t : {x, w, b}) EXPECT_EQ(t.grad().dtype(), DType::kF32);
  const Tensor dw = w.grad();
  for (const Tensor& t : {x, w, b}) t.set_grad({});
  backward({x, w, b}, [&] { return linear(x, w, b); });
  const auto low = dw.to_vector<double>(), high = w.grad().to_vector<double>();
  for (size_t i = 0; i < low.size(); ++i) EXPECT_NEAR(low[i], high[i], 0.05);
}

// Each gradient is a sum of 301 ones. bf16 cannot represent 301, so a gradient rounded to bf16 would differ.
TEST_F(AutocastTest, GradientsOfFiltersAreNotRoundedOnTheirWay) {
  const Tensor ones_image = ones({1, 16, 7, 43}), weight = zeros({16, 16, 1, 1}), bias = zeros({16});
  backward({weight, bias}, [&] {
    auto amp = autocast(DType::kBF16);
    return conv2d(ones_image, weight, bias);
  });
  for (const Tensor& t : {weight, bias}) {
    EXPECT_EQ(t.grad().dtype(), DType::kF32);
    for (float v : t.grad().to_vector<float>()) EXPECT_EQ(v, 301);
  }
}

TEST_F(AutocastTest, TheGradientOfALinearWeightIsNotRounded) {
  const Tensor ones_rows = ones({301, 16}), weight = zeros({8, 16});
  backward({weight}, [&] {
    auto amp = autocast(DType::kBF16);
    return linear(ones_rows, weight, {});
  });
  EXPECT_EQ(weight.grad().dtype(), DType::kF32);
  for (float v : weight.grad().to_vector<float>()) EXPECT_EQ(v, 301);
}

TEST_F(AutocastTest, SecondOrderOfConvolutionAndLinearWorks) {
  const std::pair<Tensor, Tensor> operands[] = {{randn({2, 16, 5, 5}), randn({8, 16, 3, 3})},
                                                {randn({2, 5, 16}), randn({8, 16})}};
  for (const auto& [input, weight] : operands) {
    const auto squares_of_grad = [&, &input = input, &weight = weight] {
      const Tensor dw = autograd::grad(
          [&](const Tensor& v) { return sum(square(v.dim() == 2 ? linear(input, v) : conv2d(input, v))); },
          weight);
      EXPECT_EQ(dw.dtype(), DType::kF32);
      return square(dw);
    };
    backward({input}, [&] {
      auto amp = autocast(DType::kBF16);
      return squares_of_grad();
    });
    ASSERT_TRUE(input.grad().defined());
    const Tensor low = input.grad();
    input.set_grad({});
    backward({input}, squares_of_grad);
    const auto a = low.to_vector<double>(), b = input.grad().to_vector<double>();
    double difference = 0, all = 0;
    for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), all += b[i] * b[i];
    EXPECT_LT(std::sqrt(difference / all), 8 / 256.0);  // eight roundings to 8 bits, at most
  }
}

// PyTorch caches the cast with its graph node: a cast made under no_grad would detach the parameter later.
TEST_F(AutocastTest, ACastThatWasMadeWithoutRecordingDoesNotCutOffLaterUses) {
  backward({w}, [&] {
    auto amp = autocast(DType::kBF16);
    {
      auto off = no_record();
      linear(x, w);
    }
    return linear(x, w);
  });
  EXPECT_TRUE(w.grad().defined());
}

TEST_F(AutocastTest, GradientsOfSeveralUsesAreSummedInF32) {
  const Tensor one = ones({1, 1}), weight = ones({1, 1});
  backward({weight}, [&] {
    auto amp = autocast(DType::kBF16);
    Tensor y = linear(one, weight);
    for (int i = 0; i < 300; ++i) y = add(to(y, DType::kF32), to(linear(one, weight), DType::kF32));
    return y;
  });
  EXPECT_EQ(weight.grad().item<float>(), 301);  // bf16 stops counting at 256
}

TEST_F(AutocastTest, ScopesNestAndCanBeSwitchedOff) {
  EXPECT_FALSE(autocast_dtype());
  {
    auto amp = autocast(DType::kBF16);
    {
      auto off = autocast(DType::kBF16, {.enabled = false});
      EXPECT_FALSE(autocast_dtype());
      EXPECT_EQ(linear(x, w, b).dtype(), DType::kF32);
      auto half = autocast(DType::kF16);
      EXPECT_EQ(linear(x, w, b).dtype(), DType::kF16);
    }
    EXPECT_EQ(autocast_dtype(), DType::kBF16);
    EXPECT_EQ(linear(x, w, b).dtype(), DType::kBF16);
  }
  EXPECT_FALSE(autocast_dtype());
}

TEST_F(AutocastTest, RefusesOtherDtypes) {
  for (DType t : {DType::kF32, DType::kF64, DType::kI64}) {
    try {
      auto amp = autocast(t);
      FAIL();
    } catch (const DTypeError& e) {
      EXPECT_THAT(e.what(), HasSubstr("[autocast] expected bf16 or f16, got " + std::string(name_of(t))));
    }
  }
}

TEST_F(AutocastTest, AnExceptionInAnOpLeavesTheScopeAsItWas) {
  auto amp = autocast(DType::kBF16);
  EXPECT_THROW(linear(x, b), ShapeError);
  EXPECT_EQ(autocast_dtype(), DType::kBF16);
}

TEST_F(AutocastTest, BackwardRunsWithoutCasting) {
  GradManager gm;
  std::optional<DType> seen = DType::kF16;
  gm.attach(w, [&](const Tensor&, const Tensor& g) {
    seen = autocast_dtype();
    return g;
  });
  auto amp = autocast(DType::kBF16);
  auto recording = gm.record();
  gm.backward(sum(linear(x, w)));
  EXPECT_FALSE(seen);
  EXPECT_EQ(autocast_dtype(), DType::kBF16);
}

TEST_F(AutocastTest, SecondOrderWorks) {
  backward({w}, [&] {
    auto amp = autocast(DType::kBF16);
    const Tensor dx = autograd::grad([&](const Tensor& v) { return sum(square(linear(v, w))); }, x);
    EXPECT_EQ(dx.dtype(), DType::kF32);
    return square(dx);
  });
  ASSERT_TRUE(w.grad().defined());
  EXPECT_EQ(w.grad().dtype(), DType::kF32);
}

TEST_F(AutocastTest, CheckpointComputesAgainUnderTheSameScope) {
  std::vector<std::optional<DType>> seen;
  const auto f = [&](const Tensor& v) {
    seen.push_back(autocast_dtype());
    return linear(v, w, b);
  };
  backward({w}, [&] {
    auto amp = autocast(DType::kBF16);
    return autograd::checkpoint(f, x);
  });
  const Tensor dw = w.grad();
  w.set_grad({});
  backward({w}, [&] {
    auto amp = autocast(DType::kBF16);
    return f(x);
  });
  EXPECT_EQ(dw.to_vector<float>(), w.grad().to_vector<float>());
  seen.resize(2);
  EXPECT_THAT(seen, testing::Each(std::optional(DType::kBF16)));

  seen.clear();
  backward({w}, [&] {  // without autocast in forward, the recomputation has none
    const Tensor y = autograd::checkpoint(f, x);
    return y;
  });
  EXPECT_THAT(seen, testing::Each(std::optional<DType>()));
}

TEST_F(AutocastTest, ThreadsInheritTheScopeByASnapshot) {
  auto amp = autocast(DType::kBF16);
  DType type = DType::kF32;
  std::thread([&, ctx = Context::current().snapshot()]() mutable {
    ContextScope scope(ctx);
    type = linear(x, w).dtype();
  }).join();
  EXPECT_EQ(type, DType::kBF16);
}

// --- cached casts ---

int64_t live() { return memory_stats(kCPU).live_bytes; }

TEST_F(AutocastTest, AParameterIsCastOnceUntilItChanges) {
  const Tensor big = randn({256, 256}), v = randn({1, 256});
  auto amp = autocast(DType::kBF16);
  linear(v, big);
  const int64_t kept = live();
  linear(v, big);
  EXPECT_EQ(live(), kept);
  const float before = linear(v, big).to_vector<float>()[0];
  mul_(big, 2);
  EXPECT_EQ(linear(v, big).to_vector<float>()[0], 2 * before);
  EXPECT_EQ(live(), kept);
}

TEST_F(AutocastTest, CastsAreFreedWithTheScope) {
  const Tensor big = randn({256, 256}), v = randn({1, 256});
  const int64_t before = live();
  {
    auto amp = autocast(DType::kBF16);
    linear(v, big);
    EXPECT_GE(live(), before + 256 * 256 * 2);
  }
  EXPECT_EQ(live(), before);
}

TEST_F(AutocastTest, CastsAreFreedWithTheParameter) {
  auto amp = autocast(DType::kBF16);
  const Tensor v = randn({1, 256});
  const int64_t before = live();
  for (int i = 0; i < 200; ++i) linear(v, randn({256, 256}));
  EXPECT_EQ(live(), before);
}

TEST_F(AutocastTest, CastsOfComputedTensorsAreNotKept) {
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  auto amp = autocast(DType::kBF16);
  const Tensor scaled = w * 2.0;
  linear(x, scaled);
  EXPECT_FALSE(scaled.storage()->autograd_data);
}

TEST_F(AutocastTest, TwoViewsOfOneStorageAreToldApart) {
  const Tensor both = randn({2, 16, 8});
  auto amp = autocast(DType::kBF16);
  const Tensor first = linear(x, select(both, 0, 0)), second = linear(x, select(both, 0, 1));
  EXPECT_NE(first.to_vector<float>(), second.to_vector<float>());
  EXPECT_EQ(linear(x, select(both, 0, 0)).to_vector<float>(), first.to_vector<float>());
}

TEST_F(AutocastTest, ThreadsMayShareAParameter) {
  const Tensor want = [&] {
    auto amp = autocast(DType::kBF16);
    return linear(x, w, b);
  }();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        auto amp = autocast(DType::kBF16);
        if (linear(x, w, b).to_vector<float>() != want.to_vector<float>()) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gradus
