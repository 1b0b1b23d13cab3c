// layer_norm, rms_norm, group_norm and instance_norm beyond the op table: threads, large means, NaN, layouts,
// 16-bit floats; higher derivatives of group_norm against those of composed ops, in f64.
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

// group_norm by ops that have derivatives of any order.
Tensor composed_group_norm(const Tensor& x, int64_t groups, const Tensor& w, const Tensor& b) {
  const Tensor flat = reshape(x, {x.size(0), groups, x.numel() / (x.size(0) * groups)});
  const Tensor centered = flat - mean(flat, 2, true);
  const Tensor z = reshape(centered * rsqrt(mean(square(centered), 2, true) + 1e-5), x.shape());
  Shape channels = Dims::filled(x.dim(), 1);
  channels[1] = x.size(1);
  return (w.defined() ? z * reshape(w, channels) : z) + reshape(b, channels);
}

struct SecondOrder {
  Tensor (*norm)(const Tensor&, int64_t, const Tensor&, const Tensor&);
  int64_t groups;
  bool weighted;
  Tensor bias, ddx, ddw, ddb;  // undefined: that gradient is not used

  // Returns the gradients with respect to dy, x and w of the norm's gradients.
  std::vector<Tensor> operator()(const std::vector<Tensor>& dy_x_w) const {
    return autograd::grad(
        [&](const std::vector<Tensor>& t) {
          const auto g = autograd::grad(
              [&](const std::vector<Tensor>& u) {
                return norm(u[0], groups, weighted ? u[1] : Tensor(), u[2]);
              },
              {t[1], t[2], bias}, t[0]);
          Tensor total = zeros({}, {.dtype = bias.dtype()});
          if (ddx.defined()) total = total + sum(g[0] * ddx);
          if (ddw.defined()) total = total + sum(g[1] * ddw);
          if (ddb.defined()) total = total + sum(g[2] * ddb);
          return total;
        },
        dy_x_w);
  }
};

Tensor group_norm_with(const Tensor& x, int64_t groups, const Tensor& w, const Tensor& b) {
  return group_norm(x, groups, w, b);
}

// used: bits of the gradients whose derivatives are taken: 1 of x, 2 of the weight, 4 of the bias.
void expect_second_order(const Shape& shape, int64_t groups, bool weighted, DType type, bool channels_last,
                         double tolerance, int used = 7) {
  SCOPED_TRACE(concat(shape, " in ", groups, " groups of ", type, ", used ", used));
  const Shape channels{shape[1]};
  const auto make = [&](const Shape& s, int seed) {
    const Tensor t = raw::to(random_tensor(s, DType::kF32, seed), type);
    return channels_last && t.dim() > 2 ? raw::channels_last(t) : t;
  };
  const auto f64 = [](const Tensor& t) { return t.defined() ? raw::to(t, DType::kF64) : t; };
  const SecondOrder own{&group_norm_with,
                        groups,
                        weighted,
                        make(channels, 4),
                        used & 1 ? make(shape, 5) : Tensor(),
                        used & 2 ? make(channels, 6) : Tensor(),
                        used & 4 ? make(channels, 7) : Tensor()};
  SecondOrder reference = own;
  reference.norm = &composed_group_norm;
  for (Tensor* t : {&reference.bias, &reference.ddx, &reference.ddw, &reference.ddb}) *t = f64(*t);
  const std::vector<Tensor> at{make(shape, 1), make(shape, 2), make(channels, 3)};
  const std::vector<Tensor> at64{f64(at[0]), f64(at[1]), f64(at[2])};
  const auto got = own(at), want = reference(at64);
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i == 0 ? "dy" : i == 1 ? "x" : "weight");
    const Tensor scale = max(abs(want[i])) + 1e-30;
    expect_near(f64(got[i]) / scale, want[i] / scale, tolerance);
  }
}

TEST(GroupNorm, HasDerivativesOfItsDerivatives) {
  // Rows are summed 16 at a time, and in a block for each 65,536 elements.
  for (const auto& [type, tolerance] : {std::pair{DType::kF64, 1e-11}, {DType::kF32, 3e-5}}) {
    for (bool last : {false, true}) {
      for (int64_t rows : {1, 2, 15, 16, 17, 31, 33, 257})
        for (const auto& [channels, groups] : {std::pair<int64_t, int64_t>{1, 1}, {4, 2}, {6, 1}, {17, 17}})
          if (rows * channels / groups > 2)  // two elements always normalize to -1 and 1
            expect_second_order({3, channels, rows}, groups, rows % 2 == 0, type, last, tolerance);
      expect_second_order({5, 12}, 3, true, type, last, tolerance);
      expect_second_order({2, 8, 64, 127}, 1, true, type, last, tolerance);
      expect_second_order({2, 8, 64, 128}, 4, true, type, last, tolerance);
      expect_second_order({1, 16, 90, 91}, 1, false, type, last, tolerance);
      expect_second_order({2, 4, 5, 3, 2}, 2, true, type, last, tolerance);
      for (int used = 1; used < 7; ++used)
        expect_second_order({2, 4, 9}, 2, true, type, last, tolerance, used);
    }
  }
}

TEST(GroupNorm, HasAThirdDerivative) {
  const std::vector<Tensor> at{random_tensor({2, 4, 5}, DType::kF64, 1),
                               random_tensor({2, 4, 5}, DType::kF64, 2), random_tensor({4}, DType::kF64, 3)};
  SecondOrder own{&group_norm_with,
                  2,
                  true,
                  random_tensor({4}, DType::kF64, 4),
                  random_tensor({2, 4, 5}, DType::kF64, 5),
                  random_tensor({4}, DType::kF64, 6),
                  random_tensor({4}, DType::kF64, 7)};
  SecondOrder reference = own;
  reference.norm = &composed_group_norm;
  const auto third = [&](const SecondOrder& f) {
    return autograd::grad(
        [&](const std::vector<Tensor>& t) {
          const auto g = f(t);
          return sum(g[0] * at[1]) + sum(g[1] * at[0]) + sum(g[2] * at[2]);
        },
        at);
  };
  const auto got = third(own), want = third(reference);
  for (size_t i = 0; i < 3; ++i) expect_near(got[i], want[i], 1e-9);
}

TEST(GroupNorm, SecondOrderGivesTheSameBitsForAnyNumberOfThreads) {
  set_num_threads(1);
  const SecondOrder f{
      &group_norm_with,   4, true, random_tensor({16}), random_tensor({3, 16, 40, 41}), random_tensor({16}),
      random_tensor({16})};
  const std::vector<Tensor> at{random_tensor({3, 16, 40, 41}, DType::kF32, 2), random_tensor({3, 16, 40, 41}),
                               random_tensor({16})};
  const auto want = f(at);
  for (int threads : {2, 5}) {
    set_num_threads(threads);
    const auto got = f(at);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>()) << threads;
    set_num_threads(1);
  }
}

TEST(InstanceNorm, AnEmptyBatchLeavesTheRunningStatistics) {
  const Tensor mean = full({3}, 2), var = full({3}, 5);
  instance_norm(zeros({0, 3, 4}), mean, var);
  EXPECT_EQ(mean.to_vector<float>(), std::vector<float>(3, 2));
  EXPECT_EQ(var.to_vector<float>(), std::vector<float>(3, 5));
}

}  // namespace
}  // namespace gradus
