// Pooling on the CPU beyond the op table: ties, NaN, ceil_mode, 16-bit floats, the fused gradient of max
// pooling of a ReLU, errors.
#include "gradus/autograd/ops/images/pool.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

Tensor image(std::vector<float> v, int64_t h, int64_t w) { return tensor(v, {1, 1, h, w}); }

class Pool : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Pool, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Windows of each kind of geometry.
std::vector<PoolWindows> max_windows(const Tensor& x) {
  return {raw::max_pool2d_windows(x, {.kernel = 2}),
          raw::max_pool2d_windows(x, {.kernel = 3, .stride = 2, .padding = 1}),
          raw::max_pool2d_windows(x, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}),
          raw::max_pool2d_windows(x, {.kernel = 2, .stride = 1, .dilation = 2}),
          raw::max_pool2d_windows(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true}),
          raw::max_pool2d_windows(x, {.kernel = 1, .stride = 2}),
          raw::adaptive_windows("adaptive_max_pool2d", x, 2, {1, 3, 4}),
          raw::adaptive_windows("adaptive_max_pool2d", x, 2, {1, 9, 1})};
}

// 16-bit floats: the same comparisons and sums in f32, rounded once.
TEST(NarrowPool, IsF32sRoundedOnce) {
  for (DType t : {DType::kBF16, DType::kF16})
    for (int64_t channels : {5, 16, 37}) {
      const Tensor x = random_tensor({2, channels, 7, 8}, t, 1), wide = raw::to(x, DType::kF32);
      for (const PoolWindows& w : max_windows(x)) {
        const auto [y, index] = raw::max_pool(x, w);
        const auto [wide_y, wide_index] = raw::max_pool(wide, w);
        EXPECT_EQ(y.dtype(), t);
        expect_near(raw::to(y, DType::kF32), wide_y, 0);
        expect_near(raw::max_pool_value(x, w), y, 0);
        EXPECT_EQ(index.to_vector<int64_t>(), wide_index.to_vector<int64_t>());
        const Tensor dy = random_tensor(y.shape(), t, 2), dx = raw::max_pool_scatter(dy, index, w);
        EXPECT_EQ(dx.dtype(), t);
        expect_near(dx, raw::to(raw::max_pool_scatter(raw::to(dy, DType::kF32), index, w), t), 0);
      }
    }
}

TEST(MaxPool2d, TheFirstOfEqualsWins) {
  const Tensor x = image({1, 3, 3, 3}, 2, 2);
  const auto [y, index] = raw::max_pool(x, raw::max_pool2d_windows(x, {.kernel = 2}));
  EXPECT_EQ(y.item<float>(), 3);
  EXPECT_EQ(index.to_vector<int64_t>(), std::vector<int64_t>{1});
}

TEST(MaxPool2d, ANaNWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = image({1, nan, 3, 2}, 2, 2);
  EXPECT_TRUE(std::isnan(raw::max_pool(x, raw::max_pool2d_windows(x, {.kernel = 2})).first.item<float>()));
  EXPECT_TRUE(std::isnan(raw::max_pool_value(x, raw::max_pool2d_windows(x, {.kernel = 2})).item<float>()));
  const Tensor narrow = raw::to(x, DType::kBF16);
  EXPECT_TRUE(
      std::isnan(raw::max_pool_value(narrow, raw::max_pool2d_windows(narrow, {.kernel = 2})).item<float>()));
}

// Both taps of the dilated kernel lie in the padding.
TEST(MaxPool2d, PositionsOfAWindowWithoutPixelsAreZero) {
  const Tensor x = image({5}, 1, 1);
  const PoolWindows w = raw::max_pool2d_windows(x, {.kernel = 2, .padding = 1, .dilation = 2});
  EXPECT_EQ(raw::max_pool_positions(raw::max_pool(x, w).second, w).to_vector<int64_t>(),
            std::vector<int64_t>{0});
}

TEST(MaxPool2d, LargeWindowsUseWiderIndices) {
  const Tensor x = random_tensor({1, 2, 20, 20});
  const PoolWindows w = raw::max_pool2d_windows(x, {.kernel = 20});
  const auto [y, index] = raw::max_pool(x, w);
  EXPECT_EQ(index.dtype(), DType::kI32);
  expect_near(raw::max_pool_gather(x, index, w), y, 0);
}

// Figures from PyTorch 2.15.
TEST(CeilMode, TakesAWindowLargerThanTheImageAsFarAsItReaches) {
  const Tensor signal = tensor(std::vector<float>{2, 3}, {1, 1, 2}), image = reshape(signal, {1, 1, 1, 2}),
               volume = reshape(signal, {1, 1, 1, 1, 2});
  for (int64_t kernel : {3, 4, 5})
    for (int64_t stride : {1, 2, 3, 4}) {
      const bool fits = kernel - 2 < stride;  // ceil((2 - kernel) / stride) is 0: one window, else none
      const auto expect = [&](std::function<Tensor()> f, double value, const char* name) {
        try {
          const Tensor y = f();
          EXPECT_TRUE(fits) << name << ' ' << kernel << ' ' << stride;
          EXPECT_NEAR(y.item<float>(), value, 1e-6 * value) << name << ' ' << kernel << ' ' << stride;
        } catch (const ShapeError& e) {
          EXPECT_FALSE(fits) << e.what();
        }
      };
      const Size2 k2(1, kernel), s2(1, stride);
      const Size3 k3(1, 1, kernel), s3(1, 1, stride);
      expect([&] { return max_pool1d(signal, {.kernel = kernel, .stride = stride, .ceil_mode = true}); }, 3,
             "max 1");
      expect([&] { return max_pool2d(image, {.kernel = k2, .stride = s2, .ceil_mode = true}); }, 3, "max 2");
      expect([&] { return max_pool3d(volume, {.kernel = k3, .stride = s3, .ceil_mode = true}); }, 3, "max 3");
      expect([&] { return avg_pool1d(signal, {.kernel = kernel, .stride = stride, .ceil_mode = true}); }, 2.5,
             "avg 1");
      expect([&] { return avg_pool2d(image, {.kernel = k2, .stride = s2, .ceil_mode = true}); }, 2.5,
             "avg 2");
      // The mean square of the covered cells, times the window's size.
      const double lp = std::sqrt(6.5 * double(kernel));
      expect(
          [&] {
            return lp_pool1d(signal, {.p = 2.0, .kernel = kernel, .stride = stride, .ceil_mode = true});
          },
          lp, "lp 1");
      expect([&] { return lp_pool2d(image, {.p = 2.0, .kernel = k2, .stride = s2, .ceil_mode = true}); }, lp,
             "lp 2");
      // As PyTorch does.
      EXPECT_THROW(avg_pool3d(volume, {.kernel = k3, .stride = s3, .ceil_mode = true}), ShapeError);
    }
  EXPECT_EQ(max_pool1d(signal, {.kernel = 2, .stride = 3, .dilation = 2, .ceil_mode = true}).item<float>(),
            2);
  EXPECT_THROW(max_pool1d(signal, {.kernel = 2, .stride = 3, .dilation = 4, .ceil_mode = true}), ShapeError);
  const AvgPool2dOptions padded{
      .kernel = Size2(1, 5), .stride = Size2(1, 4), .padding = Size2(0, 1), .ceil_mode = true};
  EXPECT_EQ(avg_pool2d(image, padded).item<float>(), 1.25);
}

TEST(MaxPool2dOfRelu, OverwritesItsInputByTheGradient) {
  // Windows with one maximum, a tie, nothing positive; a last row and column that no window covers.
  const Tensor x = image({1, 2, 0, 0, 5,  //
                          3, 0, 4, 4, 6,  //
                          0, 0, 1, 0, 7,  //
                          0, 0, 0, 1, 8,  //
                          9, 9, 9, 9, 9},
                         5, 5);
  const PoolWindows w = raw::max_pool2d_windows(x, {.kernel = 2});
  raw::max_pool_relu_grad_(x, image({10, 20, 30, 40}, 2, 2), w);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 0, 10, 0, 20, 0, 0, 0, 0, 40,
                                                      0, 0, 0, 0, 0, 0,  0, 0,  0, 0, 0, 0}));
}

TEST_P(Pool, GradientOfReluAgreesWithTheTwoSteps) {
  for (int64_t stride : {2, 3}) {
    Tensor x = random_tensor({2, 70, 7, 8}, GetParam(), 1);
    x = raw::channels_last(x);
    for (int64_t i = 0; i < x.numel(); ++i)
      GetParam() == DType::kF64 ? void(x.ptr<double>()[i] = std::max(0.0, x.ptr<double>()[i] - 0.5))
                                : void(x.ptr<float>()[i] = std::max(0.f, x.ptr<float>()[i] - 0.5f));
    const PoolWindows w = raw::max_pool2d_windows(x, {.kernel = 2, .stride = stride});
    const auto [y, index] = raw::max_pool(x, w);
    const Tensor dy = random_tensor(y.shape(), GetParam(), 2);
    const auto scattered = raw::max_pool_scatter(dy, index, w).to_vector<double>(), h = x.to_vector<double>();
    raw::max_pool_relu_grad_(x, dy, w);
    const auto got = x.to_vector<double>();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], h[i] > 0 ? scattered[i] : 0) << i;
  }
}

// A gradient is one of dy's numbers or zero, so no dtype rounds it. In f64 a plain loop computes it.
TEST(MaxPool2dOfRelu, GivesTheBitsOfF64InEachDtype) {
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16})
    for (int64_t C = 1; C <= 40; ++C)
      for (const int64_t stride : {2, 3}) {
        const Tensor some = relu(random_tensor({2, C, 7, 8}, t, uint64_t(C)));
        const Tensor x = raw::clone(raw::channels_last(some)),
                     x64 = raw::channels_last(raw::to(x, DType::kF64));
        const PoolWindows w = raw::max_pool2d_windows(x, {.kernel = 2, .stride = stride});
        const Tensor dy = random_tensor(raw::max_pool_value(x, w).shape(), t, 2);
        raw::max_pool_relu_grad_(x, dy, w);
        raw::max_pool_relu_grad_(x64, raw::to(dy, DType::kF64), w);
        ASSERT_EQ(x.to_vector<double>(), x64.to_vector<double>()) << name_of(t) << ' ' << C;
      }
}

TEST(PoolSizes, AnEmptyBatchWorks) {
  const Tensor x = empty({0, 3, 8, 8});
  const auto [y, index] = raw::max_pool(x, raw::max_pool2d_windows(x, {.kernel = 2}));
  EXPECT_EQ(y.shape(), Shape({0, 3, 4, 4}));
  EXPECT_EQ(raw::max_pool_scatter(y, index, raw::max_pool2d_windows(x, {.kernel = 2})).shape(), x.shape());
  EXPECT_EQ(raw::avg_pool(x, raw::avg_pool2d_windows(x, {.kernel = 2})).shape(), Shape({0, 3, 4, 4}));
}

TEST(AdaptiveWindows, KernelIsTheSizeOfTheLargestWindow) {
  for (int64_t in = 1; in <= 24; ++in)
    for (int64_t out = 1; out <= 24; ++out) {
      int64_t largest = 0;
      for (int64_t o = 0; o < out; ++o)
        largest = std::max(largest, ((o + 1) * in + out - 1) / out - o * in / out);
      const PoolWindows w = raw::adaptive_windows("adaptive_max_pool1d", empty({1, 1, in}), 1, {1, 1, out});
      EXPECT_EQ(w.kernel, Size3(1, 1, largest)) << in << " to " << out;
    }
}

TEST(PoolErrors, SayWhatWasGiven) {
  const Tensor x = empty({2, 3, 4, 4});
  EXPECT_ERROR(ShapeError, raw::max_pool2d_windows(empty({3, 4, 4}), {.kernel = 2}), "[max_pool2d]",
               "f32[3,4,4]");
  EXPECT_ERROR(ShapeError, raw::max_pool2d_windows(x, {.kernel = 5}), "window of 5", "padded input of 4",
               "f32[2,3,4,4]");
  EXPECT_ERROR(ValueError, raw::max_pool2d_windows(x, {.kernel = 2, .padding = 2}),
               "padding 2 is more than half");
  EXPECT_ERROR(ValueError, raw::max_pool2d_windows(x, {.kernel = 0}), "kernel must be at least 1");
  EXPECT_ERROR(ValueError, raw::max_pool2d_windows(x, {.kernel = 2, .stride = -1}), "stride");
  EXPECT_ERROR(ValueError, raw::avg_pool2d_windows(x, {.kernel = 2, .padding = -1}), "[avg_pool2d]",
               "padding");
  EXPECT_ERROR(DTypeError, raw::avg_pool2d_windows(empty({2, 3, 4, 4}, {DType::kI64, kCPU}), {.kernel = 2}),
               "i64");
  EXPECT_ERROR(ValueError, raw::adaptive_windows("adaptive_avg_pool2d", x, 2, {1, 0, 0}),
               "[adaptive_avg_pool2d]", "output size");
  EXPECT_ERROR(ValueError,
               raw::adaptive_windows("adaptive_max_pool2d", empty({0, 1, 50'000, 50'000}), 2, {1, 1, 1}),
               "[adaptive_max_pool2d]", "window", "2500000000");
  EXPECT_ERROR(ShapeError, raw::max_pool2d_windows(empty({2, 3, 0, 4}), {.kernel = 2}), "no pixels");
  const PoolWindows w = raw::max_pool2d_windows(x, {.kernel = 2});
  const Tensor dy = empty({2, 3, 2, 2});
  EXPECT_ERROR(DTypeError, raw::max_pool_scatter(dy, empty({2, 3, 2, 2}, {DType::kI64, kCPU}), w),
               "index must be u8", "i64");
  EXPECT_ERROR(ShapeError, raw::max_pool_scatter(dy, empty({2, 4, 2, 2}, {DType::kU8, kCPU}), w),
               "does not belong");
  EXPECT_ERROR(ShapeError, raw::max_pool_gather(empty({2, 3, 5, 4}), {}, w), "x must be [N,C,4,4]");
  EXPECT_ERROR(DeviceError,
               raw::max_pool_scatter(dy, empty({2, 3, 2, 2}, {DType::kU8, Device::parse("cpu:1")}), w),
               "cpu:1");
}

// The fused node gives what relu and pooling give one by one.
TEST_P(Pool, OfAReluHasTheGradientOfBoth) {
  const Tensor x = random_tensor({2, 5, 7, 8}, GetParam(), 1),
               dy = random_tensor({2, 5, 3, 4}, GetParam(), 2);
  const auto fused = [](const Tensor& v) { return max_pool2d(relu(v), {.kernel = 2}); };
  const auto apart = [](const Tensor& v) { return max_pool2d(relu(v) + 0, {.kernel = 2}); };
  expect_near(autograd::grad(fused, x, dy), autograd::grad(apart, x, dy), 0);
  // The relu's result is used once more, so its buffer is not the pooling's to overwrite.
  const auto shared = [](const Tensor& v) {
    const Tensor h = relu(v);
    return max_pool2d(h, {.kernel = 2}) + max_pool2d(h * h, {.kernel = 2});
  };
  const auto shared_apart = [](const Tensor& v) {
    const Tensor h = relu(v) + 0;
    return max_pool2d(h, {.kernel = 2}) + max_pool2d(h * h, {.kernel = 2});
  };
  expect_near(autograd::grad(shared, x, dy), autograd::grad(shared_apart, x, dy), 1e-6);
}

TEST_P(Pool, OfAReluHasASecondDerivative) {
  const Tensor x = random_tensor({2, 3, 6, 6}, GetParam(), 1),
               dy = random_tensor({2, 3, 3, 3}, GetParam(), 2);
  const Tensor ddx = random_tensor(x.shape(), GetParam(), 3);
  const auto of = [&](auto pooled) {  // d<dx(x, dy), ddx>/d(x, dy)
    return autograd::grad(
        [&](const std::vector<Tensor>& v) {
          return sum(ddx * autograd::grad([&](const Tensor& u) { return pooled(u * u * u); }, v[0], v[1]));
        },
        {x, dy});
  };
  const auto fused = of([](const Tensor& v) { return max_pool2d(relu(v), {.kernel = 2}); });
  const auto apart = of([](const Tensor& v) { return max_pool2d(relu(v) + 0, {.kernel = 2}); });
  for (int i : {0, 1}) expect_near(fused[i], apart[i], 1e-5);
}

TEST(MaxPool2dOfRelu, BackwardTakesOverTheBuffer) {
  const Tensor x = raw::channels_last(random_tensor({4, 16, 32, 32}));
  const void* dx_buffer = nullptr;
  GradManager gm;
  gm.attach(x, [&](const Tensor&, const Tensor& dx) {
    dx_buffer = dx.raw_ptr();
    return dx;
  });
  auto recording = gm.record();
  Tensor h = relu(x);
  const void* const relu_buffer = h.raw_ptr();
  h = max_pool2d(h, {.kernel = 2});
  gm.backward(sum(h));
  EXPECT_NE(relu_buffer, nullptr);
  EXPECT_EQ(dx_buffer, relu_buffer);
}

TEST_P(Pool, ReadsAnyLayout) {
  const Tensor x = random_tensor({2, 5, 7, 8}, GetParam(), 1),
               dy = random_tensor({2, 5, 3, 4}, GetParam(), 2);
  const auto f = [](const Tensor& v) { return max_pool2d(relu(v), {.kernel = 2}); };
  expect_near(autograd::grad(f, raw::channels_last(x), dy), autograd::grad(f, x, dy), 0);
}

}  // namespace
}  // namespace gradus
