// Batch norm on the CPU: values and statistics against plain loops and f64, and the fused forms with ReLU and
// residual (batch_norm_relu, _add_relu, _leaky_relu) against the bits of single ops.
#include "gradus/autograd/ops/norm/batch_norm.h"

#include <array>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tests/ops/leaky_batch_norm.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

class BatchNorm : public testing::TestWithParam<DType> {
 protected:
  double tolerance() const { return GetParam() == DType::kF64 ? 1e-11 : 2e-5; }
};
INSTANTIATE_TEST_SUITE_P(DTypes, BatchNorm, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Random, channels-last if it is an image.
Tensor image(const Shape& shape, uint64_t seed) {
  const Tensor x = random_tensor(shape, DType::kF32, seed);
  return x.dim() == 2 ? x : raw::channels_last(x);
}

// The elements of channel c.
std::vector<double> channel(const Tensor& x, int64_t c) { return raw::select(x, 1, c).to_vector<double>(); }

std::pair<double, double> moments(const std::vector<double>& v) {
  double mean = 0, var = 0;
  for (double e : v) mean += e / v.size();
  for (double e : v) var += (e - mean) * (e - mean) / v.size();
  return {mean, var};
}

TEST_P(BatchNorm, NormalizesEveryChannel) {
  for (const Shape& shape :
       {Shape{6, 3}, Shape{4, 3, 5}, Shape{2, 3, 4, 5}, Shape{40, 3, 30, 20}, Shape{3, 1, 4, 4}}) {
    const Tensor x = random_tensor(shape, GetParam(), 1);
    const Tensor w = random_tensor({shape[1]}, GetParam(), 2), b = random_tensor({shape[1]}, GetParam(), 3);
    const auto r = raw::batch_norm(x, w, b, 1e-5);
    for (int64_t c = 0; c < shape[1]; ++c) {
      const auto v = channel(x, c), y = channel(r.y, c);
      const auto [mean, var] = moments(v);
      EXPECT_NEAR(r.mean.to_vector<double>()[c], mean, tolerance());
      EXPECT_NEAR(r.var.to_vector<double>()[c], var, tolerance());
      for (size_t i = 0; i < v.size(); ++i)
        ASSERT_NEAR(
            y[i], (v[i] - mean) / std::sqrt(var + 1e-5) * w.to_vector<double>()[c] + b.to_vector<double>()[c],
            tolerance());
    }
    expect_near(raw::batch_norm_apply(x, r.mean, r.var, w, b, 1e-5), r.y, tolerance());
  }
}

TEST_P(BatchNorm, ImagesComeOutChannelsLast) {
  EXPECT_TRUE(raw::batch_norm(random_tensor({2, 3, 4, 5}, GetParam()), {}, {}, 1e-5).y.is_channels_last());
  EXPECT_TRUE(raw::batch_norm(random_tensor({4, 3}, GetParam()), {}, {}, 1e-5).y.is_row_major());
}

TEST_P(BatchNorm, SurvivesALargeMean) {
  Tensor x = random_tensor({64, 2, 8, 8}, GetParam());
  for (int64_t i = 0; i < x.numel(); ++i)
    GetParam() == DType::kF64 ? void(x.ptr<double>()[i] += 1000) : void(x.ptr<float>()[i] += 1000);
  const auto r = raw::batch_norm(x, {}, {}, 1e-5);
  for (int64_t c : {0, 1}) EXPECT_NEAR(r.var.to_vector<double>()[c], moments(channel(x, c)).second, 1e-4);
}

// Few channels, whose rows are joined, many channels, odd numbers of rows.
TEST(BatchNormKernel, AgreesWithF64) {
  const auto wide = [](const Tensor& t) { return raw::to(t, DType::kF64); };
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 1, 3, 3}, Shape{4, 37, 6, 5}, Shape{33, 64, 4, 4},
                             Shape{2, 300, 2, 2}, Shape{9, 80, 17, 19}})
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
      for (const double slope : {1., 0., 0.2, -0.5}) {
        const Tensor x = raw::to(image(shape, 1), t), dy = raw::to(image(shape, 2), t);
        const Tensor w = random_tensor({shape[1]}, DType::kF32, 3),
                     b = random_tensor({shape[1]}, DType::kF32, 4);
        const auto r = raw::batch_norm(x, w, b, 1e-5), e = raw::batch_norm(wide(x), wide(w), wide(b), 1e-5);
        // One rounding to the dtype; |y| < 4.
        const double rounding = t == DType::kF32 ? 1e-5 : t == DType::kF16 ? 0x1p-9 : 0x1p-6;
        EXPECT_EQ(name_of(r.y.dtype()), name_of(t));
        EXPECT_EQ(name_of(r.mean.dtype()), "f32");
        expect_near(wide(r.y), e.y, rounding);
        expect_near(wide(r.mean), e.mean, 1e-6);
        expect_near(wide(r.var), e.var, 1e-6);
        const auto g = raw::batch_norm_backward(dy, x, r.mean, r.var, w, b, {.negative_slope = slope});
        const auto h = raw::batch_norm_backward(wide(dy), wide(x), e.mean, e.var, wide(w), wide(b),
                                                {.negative_slope = slope});
        expect_near(wide(g.dx), h.dx, 2 * rounding);
        expect_near(wide(g.dweight), h.dweight, 1e-4);
        expect_near(wide(g.dbias), h.dbias, 1e-4);
        const auto in_place = raw::batch_norm_backward(raw::clone(dy), x, r.mean, r.var, w, b,
                                                       {.negative_slope = slope, .in_place = true});
        EXPECT_EQ(in_place.dx.to_vector<float>(), g.dx.to_vector<float>());
      }
}

// relu(batch_norm(x)) is one node of the graph, or two if the batch norm's result has other references. Both
// give the same bits.
TEST(RectifiedBatchNorm, GivesTheSameGradientsInOneNode) {
  const Tensor x = image({4, 6, 5, 5}, 1), w = random_tensor({6}, DType::kF32, 2),
               b = random_tensor({6}, DType::kF32, 3);
  const Tensor dy = image({4, 6, 5, 5}, 4);
  const auto gradients = [&](bool keep, bool use_before) {
    return autograd::grad(
        [&](const std::vector<Tensor>& v) {
          Tensor h = batch_norm(v[0], v[1], v[2], {}, {}, {.training = true});
          const Tensor kept = keep ? h : Tensor();
          const Tensor also = use_before ? h * 2 : Tensor();
          const Tensor y = relu(std::move(h));
          return also.defined() ? y + also : y;
        },
        {x, w, b}, dy);
  };
  const auto one = gradients(false, false), two = gradients(true, false);
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_EQ(one[i].to_vector<float>(), two[i].to_vector<float>()) << i;
  const auto shared = gradients(false, true), apart = gradients(true, true);
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_EQ(shared[i].to_vector<float>(), apart[i].to_vector<float>()) << i;
}

class BatchNormReluKernel : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, BatchNormReluKernel,
                         testing::Values(DType::kF32, DType::kF64, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

const Shape kShapesOfRows[] = {{5, 3},         {2, 1, 3, 3},   {4, 37, 6, 5},
                               {33, 64, 4, 4}, {2, 300, 2, 2}, {9, 80, 17, 19}};

void expect_same_bits(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>());
}

// The fused kernels with a residual against single ops. The sum of 16-bit floats is rounded once, so
// it is computed here as f32.
TEST_P(BatchNormReluKernel, GivesTheBitsOfTheOpsApart) {
  const DType t = GetParam(), channels = t == DType::kF64 ? t : DType::kF32;
  for (const Shape& shape : kShapesOfRows) {
    const Tensor x = raw::to(image(shape, 1), t), residual = raw::to(image(shape, 2), t);
    const Tensor w = random_tensor({shape[1]}, channels, 3), b = random_tensor({shape[1]}, channels, 4);
    const Tensor dy = raw::to(image(shape, 5), t);
    const auto r = raw::batch_norm_relu(x, residual, w, b, {});
    const auto wide = raw::batch_norm(raw::to(x, channels), w, b, 1e-5);
    expect_same_bits(r.y, raw::to(relu(wide.y + raw::to(residual, channels)), t));
    expect_same_bits(r.mean, wide.mean);
    expect_same_bits(r.var, wide.var);
    expect_same_bits(raw::batch_norm_relu(x, {}, w, b, {}).y, raw::to(relu(wide.y), t));
    for (const double slope : {0.2, -0.5})
      expect_same_bits(raw::batch_norm_relu(x, {}, w, b, {.negative_slope = slope}).y,
                       raw::to(leaky_relu(wide.y, slope), t));
    expect_same_bits(raw::batch_norm_relu(x, raw::clone(residual), w, b, {.in_place = true}).y, r.y);

    const Tensor masked = relu_backward(dy, r.y);
    const auto expected = raw::batch_norm_backward(masked, x, r.mean, r.var, w, b, {});
    for (bool in_place : {false, true}) {
      const Tensor gone = in_place ? raw::clone(dy) : dy, y = in_place ? raw::clone(r.y) : r.y;
      const auto g = raw::batch_norm_add_relu_backward(
          gone, y, x, r.mean, r.var, w, {.eps = 1e-5, .dy_in_place = in_place, .y_in_place = in_place});
      EXPECT_EQ(g.dresidual.is_same(gone), in_place);
      EXPECT_EQ(g.dx.is_same(y), in_place);
      expect_same_bits(g.dresidual, masked);
      expect_same_bits(g.dx, expected.dx);
      expect_same_bits(g.dweight, expected.dweight);
      expect_same_bits(g.dbias, expected.dbias);
    }
  }
}

// NaN is neither positive nor negative: relu lets it and its gradient pass.
TEST(BatchNormRelu, LetsNaNPass) {
  const Tensor x = image({2, 3, 4, 4}, 1), dy = image({2, 3, 4, 4}, 2), residual = image({2, 3, 4, 4}, 3);
  residual.ptr<float>()[5] = NAN;
  const auto r = raw::batch_norm_relu(x, residual, {}, {}, {});
  EXPECT_TRUE(std::isnan(r.y.ptr<float>()[5]));
  EXPECT_FALSE(std::isnan(r.y.ptr<float>()[6]));
  const auto g = raw::batch_norm_add_relu_backward(dy, r.y, x, r.mean, r.var, {}, {});
  EXPECT_EQ(g.dresidual.ptr<float>()[5], dy.ptr<float>()[5]);
  x.ptr<float>()[7] = NAN;
  const auto y = raw::batch_norm_relu(x, {}, {}, {}, {}).y.to_vector<float>();
  EXPECT_TRUE(std::isnan(y[20])) << "its channel";
}

// leaky_relu(batch_norm(x)) and its gradients, by the one op and by two. A relu may follow.
TEST(BatchNormLeakyRelu, GivesTheBitsOfTwoOps) {
  for (DType t : {DType::kF32, DType::kF64})
    for (const double slope : {0.2, -0.5, 0., 1.})
      for (bool training : {true, false})
        for (bool again : {false, true}) {
          const auto in = [&](uint64_t seed) { return raw::to(image({4, 6, 5, 5}, seed), t); };
          const std::vector<Tensor> inputs{in(1), random_tensor({6}, t, 2), random_tensor({6}, t, 3)};
          const auto values = [&](bool fused) {
            const Tensor mean = empty({6}, {t, kCPU}), var = empty({6}, {t, kCPU});
            raw::fill_(mean, 0.25), raw::fill_(var, 2);
            const BatchNormFuncOptions options{.training = training};
            Tensor result;
            std::vector<Tensor> all = autograd::grad(
                [&](const std::vector<Tensor>& v) {
                  Tensor y = fused ? batch_norm_leaky_relu(v[0], slope, v[1], v[2], mean, var, options)
                                   : leaky_relu(batch_norm(v[0], v[1], v[2], mean, var, options), slope);
                  if (again) y = relu(std::move(y));
                  result = raw::clone(detach(y));
                  return y;
                },
                inputs, in(5));
            all.insert(all.end(), {result, mean, var});
            return all;
          };
          const std::vector<Tensor> one = values(true), two = values(false);
          ASSERT_EQ(one.size(), 6u);
          for (size_t i = 0; i < one.size(); ++i)
            EXPECT_EQ(one[i].to_vector<double>(), two[i].to_vector<double>())
                << i << ' ' << t << ' ' << slope << ' ' << training << ' ' << again;
        }
}

TEST(BatchNormLeakyRelu, OfSlope0IsNoRelu) { expect_slope_0_as_of_two_ops(kCPU); }

// Sums in bf16 are rounded once: after the rectifier.
TEST(BatchNormLeakyRelu, RoundsOnceInBF16) {
  const Tensor x = raw::to(image({4, 6, 5, 5}, 1), DType::kBF16);
  const Tensor y = batch_norm_leaky_relu(x, 0.2, {}, {}, {}, {}, {.training = true});
  const Tensor wide = raw::batch_norm(raw::to(x, DType::kF32), {}, {}, 1e-5).y;
  expect_same_bits(y, raw::to(leaky_relu(wide, 0.2), DType::kBF16));
  EXPECT_NE(y.to_vector<float>(),
            leaky_relu(batch_norm(x, {}, {}, {}, {}, {.training = true}), 0.2).to_vector<float>());
}

// relu(batch_norm(x) + residual) and its gradients, by the one op and by three.
struct Outcome {
  std::vector<Tensor> values;  // y, the running statistics, the gradients
};
Outcome add_relu(bool fused, const std::vector<Tensor>& inputs, bool training, const Tensor& dy,
                 const std::function<Tensor(const Tensor&)>& shortcut) {
  const int64_t C = inputs[0].size(1);
  const Tensor mean = empty({C}, {inputs[1].dtype(), kCPU}), var = empty({C}, {inputs[1].dtype(), kCPU});
  raw::fill_(mean, 0.25), raw::fill_(var, 2);
  Outcome o;
  o.values = autograd::grad(
      [&](const std::vector<Tensor>& v) {
        const BatchNormFuncOptions options{.training = training};
        const Tensor y = fused ? batch_norm_add_relu(v[0], shortcut(v[3]), v[1], v[2], mean, var, options)
                               : relu(batch_norm(v[0], v[1], v[2], mean, var, options) + shortcut(v[3]));
        o.values.push_back(detach(y));
        return y;
      },
      inputs, dy);
  o.values.push_back(mean), o.values.push_back(var);
  return o;
}

TEST(BatchNormAddRelu, GivesTheBitsOfThreeOps) {
  const Shape s{4, 6, 5, 5};
  for (DType t : {DType::kF32, DType::kF64}) {
    const auto in = [&](const Shape& shape, uint64_t seed) { return raw::to(image(shape, seed), t); };
    const auto channel = [&](uint64_t seed) { return random_tensor({6}, t, seed); };
    const auto as_is = [](const Tensor& r) { return r; };
    const auto temporary = [](const Tensor& r) { return r * 2; };
    for (bool training : {true, false})
      for (const Shape& residual : {s, Shape{4, 6, 1, 1}, Shape{5}})
        for (const auto& shortcut :
             {std::function<Tensor(const Tensor&)>(as_is), std::function<Tensor(const Tensor&)>(temporary)}) {
          const Tensor other = residual.size() == 4 ? in(residual, 4) : random_tensor(residual, t, 4);
          const std::vector<Tensor> inputs{in(s, 1), channel(2), channel(3), other};
          const Tensor before = raw::clone(other);
          const Outcome one = add_relu(true, inputs, training, in(s, 5), shortcut);
          const Outcome three = add_relu(false, inputs, training, in(s, 5), shortcut);
          ASSERT_EQ(one.values.size(), three.values.size());
          for (size_t i = 0; i < one.values.size(); ++i)
            EXPECT_EQ(one.values[i].to_vector<double>(), three.values[i].to_vector<double>())
                << i << ' ' << training << ' ' << residual;
          expect_same_bits(other, before);
        }
  }
}

// The residual may be the batch norm's own input, and the result may be used again.
TEST(BatchNormAddRelu, SharesItsInputsAndItsResult) {
  const Tensor x = image({4, 6, 5, 5}, 1), dy = image({4, 6, 5, 5}, 2);
  const auto gradient = [&](bool fused) {
    return autograd::grad(
        [&](const std::vector<Tensor>& v) {
          const BatchNormFuncOptions options{.training = true};
          const Tensor y = fused ? batch_norm_add_relu(v[0], v[0], {}, {}, {}, {}, options)
                                 : relu(batch_norm(v[0], {}, {}, {}, {}, options) + v[0]);
          return y * y + relu(y);
        },
        {x}, dy)[0];
  };
  expect_same_bits(gradient(true), gradient(false));
}

// Sums in bf16 are rounded once instead of twice; its signs mask the gradients.
TEST(BatchNormAddRelu, TakesTheFusedPathInBF16) {
  const Shape s{4, 6, 5, 5};
  const auto half = [&](uint64_t seed) { return raw::to(image(s, seed), DType::kBF16); };
  const Tensor x = half(1), r = half(2), dy = half(3), w = random_tensor({6}, DType::kF32, 4);
  Tensor y;
  const auto g = autograd::grad(
      [&](const std::vector<Tensor>& v) {
        y = batch_norm_add_relu(v[0], v[2], v[1], {}, {}, {}, {.training = true});
        return y;
      },
      {x, w, r}, dy);
  const auto e = raw::batch_norm(raw::to(x, DType::kF32), w, {}, 1e-5);
  expect_same_bits(y, raw::to(relu(e.y + raw::to(r, DType::kF32)), DType::kBF16));
  const Tensor masked = relu_backward(dy, y);
  const auto expected = raw::batch_norm_backward(masked, x, e.mean, e.var, w, {}, {});
  expect_same_bits(g[0], expected.dx);
  expect_same_bits(g[1], expected.dweight);
  expect_same_bits(g[2], masked);
}

// The residual gives its buffer to y, and y to x's gradient, if nothing else refers to them.
TEST(BatchNormAddRelu, TakesBuffersOver) {
  const Tensor x = image({8, 16, 16, 16}, 1), r = image({8, 16, 16, 16}, 2);
  const void* shortcut = nullptr;
  const auto g = autograd::grad(
      [&](const std::vector<Tensor>& v) {
        Tensor temporary = v[1] * 2;
        shortcut = temporary.ptr<float>();
        const Tensor y = batch_norm_add_relu(v[0], std::move(temporary), {}, {}, {}, {}, {.training = true});
        EXPECT_EQ(y.ptr<float>(), shortcut);
        return sum(y);
      },
      {x, r});
  EXPECT_EQ(g[0].ptr<float>(), shortcut) << "nobody holds y any more";
}

TEST_P(BatchNorm, RunningStatisticsMoveByMomentum) {
  const TensorOptions o{GetParam(), kCPU};
  const Tensor mean = empty({2}, o), var = empty({2}, o), new_mean = empty({2}, o), new_var = empty({2}, o);
  raw::fill_(mean, 1), raw::fill_(var, 2), raw::fill_(new_mean, 3), raw::fill_(new_var, 6);
  const Tensor batches = scalar(41, {.dtype = DType::kI64});
  const uint32_t version = mean.storage()->version();
  raw::batch_norm_update_({mean, var, batches, 0.25}, new_mean, new_var, 4);
  EXPECT_GT(mean.storage()->version(), version);
  EXPECT_GT(batches.storage()->version(), 0u);
  EXPECT_EQ(batches.item<int64_t>(), 42);
  EXPECT_THROW(raw::batch_norm_update_({mean, var, new_mean, 0.25}, new_mean, new_var, 4), ShapeError);
  EXPECT_THROW(raw::batch_norm_update_({mean, var, batches, 0.25}, new_mean, empty({1}, o), 4), ShapeError);
  for (const auto& [m, v, new_m, new_v] :
       {std::array{Tensor(), var, new_mean, new_var}, std::array{mean, Tensor(), new_mean, new_var},
        std::array{mean, var, Tensor(), new_var}, std::array{mean, var, new_mean, Tensor()}})
    EXPECT_THROW(raw::batch_norm_update_({m, v, batches, 0.25}, new_m, new_v, 4), StateError);
  for (int64_t c : {0, 1}) {
    EXPECT_NEAR(mean.to_vector<double>()[c], 1.5, 1e-6);
    EXPECT_NEAR(var.to_vector<double>()[c], 0.75 * 2 + 0.25 * 6 * 4 / 3,
                1e-6);  // unbiased: times rows / (rows - 1)
  }
}

TEST(BatchNormErrors, SayWhatWasGiven) {
  const Tensor x = empty({2, 3, 4, 4});
  EXPECT_ERROR(ShapeError, raw::batch_norm(empty({3}), {}, {}, 1e-5), "[batch_norm]", "f32[3]");
  EXPECT_ERROR(ShapeError, raw::batch_norm(x, empty({4}), {}, 1e-5), "weight must have 3 elements", "f32[4]",
               "f32[2,3,4,4]");
  EXPECT_ERROR(DTypeError, raw::batch_norm(x, empty({3}, {DType::kF64, kCPU}), {}, 1e-5),
               "x is f32 but weight is f64");
  EXPECT_ERROR(DTypeError, raw::batch_norm(empty({2, 3}, {DType::kI32, kCPU}), {}, {}, 1e-5), "i32");
}

TEST(BatchNormTraining, UpdatesTheRunningStatistics) {
  const Tensor x = random_tensor({8, 2, 3, 3}), mean = empty({2}), var = empty({2});
  raw::fill_(mean, 0), raw::fill_(var, 1);
  batch_norm(x, {}, {}, mean, var, {.training = true, .momentum = 0.1});
  for (int64_t c : {0, 1}) {
    const auto [m, v] = moments(channel(x, c));
    EXPECT_NEAR(mean.to_vector<double>()[c], 0.1 * m, 1e-6);
    EXPECT_NEAR(var.to_vector<double>()[c], 0.9 + 0.1 * v * 72 / 71, 1e-5);
  }
  const auto before = mean.to_vector<float>();
  batch_norm(x, {}, {}, mean, var, {});
  EXPECT_EQ(mean.to_vector<float>(), before);
}

// Statistics updated by the op have the bits of batch_norm_update_; those of 16 bits are rounded once.
TEST(BatchNormTraining, MovesStatisticsOfEachDtype) {
  for (DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16})
    for (DType of_mean : {t, raw::channel_dtype(t)})
      for (bool rectifies : {false, true}) {
        const Tensor x = raw::to(image({4, 37, 3, 3}, 1), t);
        const auto start = [&](DType dtype, uint64_t seed) {
          return raw::to(random_tensor({37}, DType::kF32, seed), dtype);
        };
        const DType of_var = raw::channel_dtype(t);
        raw::RunningStatistics by_op{start(of_mean, 2), start(of_var, 3), scalar(41, {.dtype = DType::kI64}),
                                     0.3};
        raw::RunningStatistics apart{start(of_mean, 2), start(of_var, 3), scalar(41, {.dtype = DType::kI64}),
                                     0.3};
        const uint32_t version = by_op.var.storage()->version();
        const auto r = rectifies ? raw::batch_norm_relu(x, {}, {}, {}, {.negative_slope = 0.2}, by_op)
                                 : raw::batch_norm(x, {}, {}, 1e-5, by_op);
        raw::batch_norm_update_(apart, r.mean, r.var, 36);
        expect_same_bits(by_op.mean, apart.mean);
        expect_same_bits(by_op.var, apart.var);
        EXPECT_NE(by_op.mean.to_vector<double>(), start(of_mean, 2).to_vector<double>());
        EXPECT_EQ(by_op.batches.item<int64_t>(), 42);
        EXPECT_GT(by_op.var.storage()->version(), version);
      }
}

TEST(BatchNormTraining, RefusesStatisticsThatItCannotMove) {
  const Tensor x = random_tensor({4, 3}), good = zeros({3});
  const auto moves = [&](const Tensor& mean, const Tensor& batches) {
    raw::batch_norm(x, {}, {}, 1e-5, {mean, good, batches, 0.1});
  };
  const auto rectifies = [&](const Tensor& mean) {
    raw::batch_norm_relu(x, {}, {}, {}, {}, {mean, good, {}, 0.1});
  };
  moves(good, {});
  EXPECT_ERROR(ShapeError, moves(zeros({4}), {}), "[batch_norm]", "running statistics", "f32[4]");
  EXPECT_ERROR(ShapeError, rectifies(zeros({4})), "[batch_norm_relu]", "f32[4]");
  EXPECT_ERROR(DTypeError, moves(zeros({3}, {DType::kF16, kCPU}), {}), "[batch_norm]", "f16");
  EXPECT_ERROR(DTypeError, moves(zeros({3}, {DType::kF64, kCPU}), {}), "[batch_norm]", "f64");
  EXPECT_ERROR(ShapeError, moves(good, zeros({1})), "[batch_norm]", "num_batches_tracked");
}

// An empty batch is counted, and moves nothing.
TEST(BatchNormTraining, CountsAnEmptyBatch) {
  const Tensor mean = ones({3}), var = ones({3}), batches = scalar(41, {.dtype = DType::kI64});
  const BatchNormFuncOptions options{.training = true, .num_batches_tracked = batches};
  batch_norm(zeros({0, 3}), {}, {}, mean, var, options);
  batch_norm_relu(zeros({0, 3}), {}, {}, mean, var, options);
  batch_norm_leaky_relu(zeros({0, 3}), 0.2, {}, {}, mean, var, options);
  EXPECT_EQ(batches.item<int64_t>(), 44);
  EXPECT_EQ(mean.to_vector<float>(), std::vector<float>(3, 1));
  EXPECT_EQ(var.to_vector<float>(), std::vector<float>(3, 1));
}

TEST(BatchNormTraining, StatisticsMayMoveOnBeforeBackward) {
  const Tensor x = random_tensor({4, 2}), w = random_tensor({2}, DType::kF32, 2), mean = empty({2}),
               var = empty({2});
  raw::fill_(mean, 0), raw::fill_(var, 1);
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  const Tensor y = batch_norm(x, w, {}, mean, var, {});
  raw::fill_(mean, 7);
  gm.backward(sum(y));
  for (int64_t c : {0, 1}) {
    double s = 0;
    for (double v : channel(x, c)) s += v;
    EXPECT_NEAR(w.grad().to_vector<double>()[c], s, 1e-4);
  }
}

TEST(BatchNormErrors, OfMode) {
  const Tensor x = empty({2, 3});
  EXPECT_ERROR(ValueError, batch_norm(x, {}, {}, {}, {}, {}), "no running statistics");
  EXPECT_ERROR(ValueError, batch_norm(empty({1, 3}), {}, {}, {}, {}, {.training = true}),
               "more than one element", "f32[1,3]");
  EXPECT_ERROR(ValueError, batch_norm(x, {}, {}, empty({3}), {}, {}), "together");
  EXPECT_ERROR(ValueError, batch_norm(x, {}, {}, {}, {}, {.training = true, .eps = -1}), "eps");
}

}  // namespace
}  // namespace gradus
