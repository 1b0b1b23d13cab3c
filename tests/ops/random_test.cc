// Random numbers and creation ops: Philox's words, distributions, dropout, multinomial, independence of
// threads and layouts, errors.
#include <algorithm>
#include <limits>
#include <numeric>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

template <class F> Tensor seeded(uint64_t seed, F f) {
  manual_seed(seed);
  return f();
}

// Known answers of Random123 (philox4x32-10): counter, key, result.
TEST(Random, PhiloxGivesThePublishedNumbers) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, ElementsAreTheWordsOfTheirCounters) {
  manual_seed(0x123456789abcdef0);
  rand({3});  // the second draw follows
  const auto f = rand({1003}).to_vector<float>();
  for (size_t i = 0; i < f.size(); ++i)
    ASSERT_EQ(f[i], uniform_f32(philox(0x123456789abcdef0, 1, i / 4)[i % 4])) << i;
  const auto d = rand({77}, {.dtype = DType::kF64}).to_vector<double>();
  for (size_t i = 0; i < d.size(); ++i) {
    const auto w = philox(0x123456789abcdef0, 2, i / 2);
    ASSERT_EQ(d[i], uniform_f64(w[2 * (i % 2)], w[2 * (i % 2) + 1])) << i;
  }
}

TEST(Random, SameSeedSameNumbersAndEveryDrawIsNew) {
  const auto a = seeded(5, [] { return randn({100}); }).to_vector<float>();
  const auto b = randn({100}).to_vector<float>();
  EXPECT_EQ(seeded(5, [] { return randn({100}); }).to_vector<float>(), a);
  EXPECT_NE(a, b);
  EXPECT_NE(seeded(6, [] { return randn({100}); }).to_vector<float>(), a);
}

TEST(Random, DoesNotDependOnThreadsOrLayout) {
  const Shape shape{4, 33, 29, 31};
  Context context = Context::current().snapshot();
  std::vector<std::vector<double>> results;
  for (int threads : {1, 2, 3}) {
    context.threads = threads;
    ContextScope scope(context);
    for (bool image : {false, true}) {
      manual_seed(11);
      std::vector<double> all;
      const Tensor x = image ? empty_channels_last(shape) : empty(shape);
      auto take = [&](const Tensor& t) {
        const auto v = t.to_vector<double>();
        all.insert(all.end(), v.begin(), v.end());
      };
      uniform_(x);
      take(x);
      normal_(x);
      take(x);
      take(raw::bernoulli_mask(x, 0.3));
      results.push_back(all);
    }
  }
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const std::vector<double>& v) {
  Moments m;
  for (double x : v) m.mean += x / double(v.size());
  for (double x : v) m.variance += (x - m.mean) * (x - m.mean) / double(v.size() - 1);
  return m;
}

// Tolerances: 5 standard errors of the estimate.
TEST(Random, UniformHasItsMomentsAndStaysInItsInterval) {
  constexpr int64_t n = 200000;
  for (DType t : {DType::kF32, DType::kF64}) {
    manual_seed(3);
    const Tensor x = empty({n}, {.dtype = t});
    uniform_(x, -2, 4);
    const auto v = x.to_vector<double>();
    const Moments m = moments(v);
    EXPECT_NEAR(m.mean, 1, 5 * std::sqrt(3.0 / n));
    EXPECT_NEAR(m.variance, 3, 5 * std::sqrt((81.0 / 5 - 9) / n));  // fourth moment 6^4 / 80
    EXPECT_GE(*std::min_element(v.begin(), v.end()), -2);
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 4);
  }
}

TEST(Random, UniformNeverReachesItsUpperEndByRounding) {
  manual_seed(1);
  const Tensor x = empty({1 << 20});
  uniform_(x, 1, 1.0000002);
  for (float v : x.to_vector<float>()) ASSERT_LT(v, 1.0000002f);
}

TEST(Random, NormalHasItsMomentsAndTails) {
  constexpr int64_t n = 200000;
  for (DType t : {DType::kF32, DType::kF64}) {
    manual_seed(4);
    const Tensor x = empty({n}, {.dtype = t});
    normal_(x, 3, 2);
    auto v = x.to_vector<double>();
    const Moments m = moments(v);
    EXPECT_NEAR(m.mean, 3, 5 * 2 / std::sqrt(double(n)));
    EXPECT_NEAR(m.variance, 4, 5 * 4 * std::sqrt(2.0 / n));
    // Kolmogorov-Smirnov: sqrt(n) D exceeds 2.2 with probability 1e-4.
    std::sort(v.begin(), v.end());
    double d = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      const double cdf = 0.5 * std::erfc(-(v[i] - 3) / 2 / std::sqrt(2.0));
      d = std::max({d, std::abs(cdf - double(i) / n), std::abs(cdf - double(i + 1) / n)});
    }
    EXPECT_LT(d * std::sqrt(double(n)), 2.2);
    // Neighbors come from one pair of uniforms, and still are independent.
    double correlation = 0;
    const auto u = x.to_vector<double>();
    for (size_t i = 0; i + 1 < u.size(); i += 2) correlation += (u[i] - 3) * (u[i + 1] - 3) / 4;
    EXPECT_LT(std::abs(correlation) / std::sqrt(n / 2.0), 5);
  }
}

TEST(Random, BernoulliHitsItsProbability) {
  constexpr int64_t n = 200000;
  for (double p : {0.0, 0.25, 0.9, 1.0}) {
    manual_seed(8);
    const Tensor x = empty({n}, {.dtype = DType::kI32});
    bernoulli_(x, p);
    EXPECT_NEAR(moments(x.to_vector<double>()).mean, p, 5 * std::sqrt(p * (1 - p) / n) + 1e-9);
    const Moments of_tensor = moments(bernoulli(full({n}, p)).to_vector<double>());
    EXPECT_NEAR(of_tensor.mean, p, 5 * std::sqrt(p * (1 - p) / n) + 1e-9);
  }
}

TEST(Random, IntegersAreUniform) {
  constexpr int64_t n = 70000;
  manual_seed(9);
  std::vector<int64_t> count(7);
  for (int64_t v : randint(-3, 4, {n}).to_vector<int64_t>()) {
    ASSERT_GE(v, -3);
    ASSERT_LT(v, 4);
    ++count[size_t(v + 3)];
  }
  double chi = 0;
  for (int64_t c : count) chi += double((c - n / 7) * (c - n / 7)) / (n / 7.0);
  EXPECT_LT(chi, 27.9);  // 6 degrees of freedom, 1e-4
  EXPECT_EQ(randint(5, {3}, {.dtype = DType::kU8}).dtype(), DType::kU8);
  // The widest range: no overflow.
  const auto wide = randint(INT64_MIN, INT64_MAX, {1000}).to_vector<int64_t>();
  EXPECT_LT(*std::min_element(wide.begin(), wide.end()), -(1ll << 61));
  EXPECT_GT(*std::max_element(wide.begin(), wide.end()), 1ll << 61);
}

TEST(Random, PermutationsContainEveryNumberOnceAndAreUniform) {
  manual_seed(2);
  auto order = randperm(1001).to_vector<int64_t>();
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1001; ++i) ASSERT_EQ(order[size_t(i)], i);
  EXPECT_EQ(randperm(0).numel(), 0);
  EXPECT_EQ(randperm(1).to_vector<int64_t>(), (std::vector<int64_t>{0}));
  std::vector<int> count(6);
  for (int i = 0; i < 6000; ++i) {
    const auto p = randperm(3).to_vector<int64_t>();
    ++count[size_t(p[0] * 2 + (p[1] > p[2]))];
  }
  double chi = 0;
  for (int c : count) chi += (c - 1000) * (c - 1000) / 1000.0;
  EXPECT_LT(chi, 25.7);  // 5 degrees of freedom, 1e-4
}

TEST(Random, RunsOnAsynchronousDevices) {
  const Device other = Device::parse("cpu:1");
  const auto here = seeded(1, [] { return randn({1000}); }).to_vector<float>();
  EXPECT_EQ(seeded(1, [&] { return randn({1000}, {.device = other}); }).to_vector<float>(), here);
}

TEST(Random, ArgumentsAreChecked) {
  const Tensor x = empty({3}), whole = empty({3}, {.dtype = DType::kI64});
  EXPECT_ERROR(ValueError, uniform_(x, 2, 1), "[uniform_]", "2", "1");
  EXPECT_ERROR(ValueError, normal_(x, 0, -1), "[normal_]", "-1");
  EXPECT_ERROR(DTypeError, normal_(whole), "i64[3]");
  EXPECT_ERROR(ValueError, bernoulli_(x, 1.5), "1.5");
  for (const float p : {1.5f, -0.1f, NAN})
    EXPECT_ERROR(ValueError, bernoulli(tensor({0.5f, p})), "[bernoulli]", "from 0 to 1", "at 1");
  EXPECT_EQ(bernoulli(tensor({0.f, 1.f})).to_vector<float>(), (std::vector<float>{0, 1}));
  EXPECT_ERROR(ValueError, randint(3, 3, {2}), "[randint]", "3");
  EXPECT_ERROR(ValueError, randperm(-1), "[randperm]", "-1");
}

TEST(Dropout, KeepsTheExpectedShareAndScalesIt) {
  constexpr int64_t n = 200000;
  manual_seed(1);
  const Tensor y = dropout(ones({n}), 0.25);
  int64_t kept = 0;
  for (float v : y.to_vector<float>()) {
    ASSERT_TRUE(v == 0 || v == float(1 / 0.75)) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(double(kept) / n, 0.75, 5 * std::sqrt(0.25 * 0.75 / n));
}

TEST(Dropout, EndsOfTheRangeAndEvaluation) {
  const Tensor x = random_tensor({50});
  EXPECT_TRUE(dropout(x, 0).is_same(x));
  EXPECT_TRUE(dropout(x, 0.9, false).is_same(x));
  for (float v : dropout(x, 1).to_vector<float>()) EXPECT_EQ(v, 0);
  EXPECT_EQ(dropout(full({3}, INFINITY), 1).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  for (double p : {-0.1, 1.1, double(NAN)}) EXPECT_ERROR(ValueError, dropout(x, p), "[dropout]");
  EXPECT_ERROR(DTypeError, dropout(arange(3)), "i64[3]");
}

TEST(Dropout, GradientUsesTheSameMaskAndSoDoesItsGradient) {
  const Tensor x = ones({4, 5, 6, 6});
  for (bool image : {false, true}) {
    const Tensor input = image ? raw::channels_last(x) : x;
    GradManager gm;
    gm.attach(input);
    auto recording = gm.record();
    const Tensor y = dropout(input, 0.4);
    const auto forward = y.to_vector<double>();
    gm.backward(sum(square(y)));  // dx = 2 y / (1 - p) where kept
    const auto dx = input.grad().to_vector<double>();
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], 2 * forward[i] / 0.6, 1e-5);
  }
}

TEST(Dropout, ATemporaryGivesItsBuffer) {
  Tensor x = ones({100});
  const void* buffer = x.raw_ptr();
  EXPECT_EQ(dropout(std::move(x), 0.5).raw_ptr(), buffer);
  const Tensor kept = ones({100});
  EXPECT_NE(dropout(kept, 0.5).raw_ptr(), kept.raw_ptr());
  for (float v : kept.to_vector<float>()) EXPECT_EQ(v, 1);
}

// --- multinomial ---

TEST(Multinomial, DrawsInProportion) {
  constexpr int64_t n = 200000;
  manual_seed(2);
  const Tensor weights = tensor({1.0, 0.0, 3.0, 4.0});
  std::vector<int64_t> counts(4);
  for (int64_t i : multinomial(weights, n, {.replacement = true}).to_vector<int64_t>()) ++counts[i];
  for (int i = 0; i < 4; ++i) {
    const double p = weights.to_vector<double>()[i] / 8;
    EXPECT_NEAR(double(counts[i]) / n, p, 5 * std::sqrt(p * (1 - p) / n)) << i;
  }
}

TEST(Multinomial, WithoutReplacementTheFirstDrawIsInProportionAndNoneRepeats) {
  constexpr int64_t rows = 100000;
  manual_seed(3);
  const Tensor weights = contiguous(expand(tensor({1.0, 2.0, 5.0}), {rows, 3}));
  const std::vector<int64_t> drawn = multinomial(weights, 3).to_vector<int64_t>();
  std::vector<double> first(3), second_after_2(3);
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_EQ(drawn[3 * r] + drawn[3 * r + 1] + drawn[3 * r + 2], 3);
    ASSERT_NE(drawn[3 * r], drawn[3 * r + 1]);
    ++first[drawn[3 * r]];
    if (drawn[3 * r] == 2) ++second_after_2[drawn[3 * r + 1]];
  }
  EXPECT_NEAR(first[0] / rows, 1.0 / 8, 0.006);
  EXPECT_NEAR(first[2] / rows, 5.0 / 8, 0.008);
  EXPECT_NEAR(second_after_2[0] / first[2], 1.0 / 3, 0.01);
}

// The quotient of an exponential random number and the weight is infinite in some rows.
TEST(Multinomial, WithoutReplacementATinyWeightIsDrawnBeforeAWeightOfZero) {
  manual_seed(4);
  const Tensor row = tensor(std::vector{0.0, 1e-308});  // f64
  for (int64_t i : multinomial(contiguous(expand(row, {100, 2})), 1).to_vector<int64_t>()) EXPECT_EQ(i, 1);
}

TEST(Multinomial, SeedAloneDecides) {
  const Tensor weights = rand({50, 30});
  for (bool replacement : {false, true}) {
    manual_seed(4);
    const std::vector<int64_t> a = multinomial(weights, 10, {replacement}).to_vector<int64_t>();
    manual_seed(4);
    set_num_threads(1);
    EXPECT_EQ(multinomial(to(weights, DType::kF64), 10, {replacement}).to_vector<int64_t>(), a);
    set_num_threads(3);
    EXPECT_NE(multinomial(weights, 10, {replacement}).to_vector<int64_t>(), a);
  }
}

TEST(Normal, MeansAndDeviations) {
  constexpr int64_t n = 100000;
  manual_seed(5);
  const std::vector<double> y =
      normal(full({2, n}, 3, {.dtype = DType::kF64}), expand(unsqueeze(tensor({0.5, 2.0}), 1), {2, n}))
          .to_vector<double>();
  for (int row : {0, 1}) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i)
      sum += y[row * n + i], squares += (y[row * n + i] - 3) * (y[row * n + i] - 3);
    const double std = row == 0 ? 0.5 : 2;
    EXPECT_NEAR(sum / n, 3, 5 * std / std::sqrt(n));
    EXPECT_NEAR(std::sqrt(squares / n), std, 0.02 * std);
  }
}

TEST(Creation, EndsOfSequencesAreExact) {
  EXPECT_EQ(linspace(0, 1, 11, {.dtype = DType::kF64}).to_vector<double>()[10], 1);
  EXPECT_EQ(arange(0, 1, 0.1).numel(), 10);
  EXPECT_EQ(arange(0).numel(), 0);
  const auto big = arange(100000).to_vector<int64_t>();
  for (int64_t i = 0; i < 100000; ++i) ASSERT_EQ(big[size_t(i)], i);
  EXPECT_EQ(arange(5, 2, -1.5).to_vector<float>(), (std::vector<float>{5, 3.5}));
  EXPECT_EQ(eye(3, 2).to_vector<double>(), (std::vector<double>{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(eye(0).numel(), 0);
}

TEST(Creation, HostileSizesAreErrors) {
  EXPECT_ERROR(ValueError, arange(0, 1e300, 1e-300), "[arange]");
  EXPECT_ERROR(ValueError, arange_from(0, NAN, 1, {}), "[arange]");
  EXPECT_ERROR(ShapeError, zeros({-1}), "-1");
  EXPECT_THROW(zeros({int64_t(1) << 40, int64_t(1) << 40}), Error);
}

TEST(Creation, IntegersTakeNoNumberThatDoesNotFit) {
  const TensorOptions i64{.dtype = DType::kI64}, u8{.dtype = DType::kU8}, i32{.dtype = DType::kI32};
  for (const double v : {double(NAN), double(INFINITY), 0x1p63, -1e30})
    EXPECT_ERROR(ValueError, full({2}, v, i64), "[full]", "does not fit into i64");
  EXPECT_ERROR(ValueError, full({2}, 256, u8), "[full]", "256", "u8");
  EXPECT_ERROR(ValueError, full({2}, -256, u8), "[full]", "-256", "u8");
  EXPECT_EQ(full({1}, -1, u8).item<uint8_t>(), 255);  // an integer's low bits, as in PyTorch
  EXPECT_ERROR(ValueError, full({2}, -1.0, u8), "[full]", "-1", "u8");
  EXPECT_ERROR(ValueError, full_like(zeros({2}, i32), 0x1p31), "[full_like]", "i32");
  EXPECT_ERROR(ValueError, fill_(zeros({2}, i64), NAN), "[fill_]", "i64");
  EXPECT_ERROR(ValueError, masked_fill(zeros({2}, u8), zeros({2}, {.dtype = DType::kBool}), 300),
               "[masked_fill]", "u8");
  EXPECT_ERROR(ValueError, arange(0, 300, 1, u8), "[arange]", "u8");
  EXPECT_EQ(full({1}, 2.9, i64).item<int64_t>(), 2);
  EXPECT_EQ(full({1}, -0x1p63, i64).item<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(full({1}, -0x1p31, i32).item<int64_t>(), -(int64_t{1} << 31));
  EXPECT_TRUE(std::isinf(full({1}, 1e300).item<float>()));
}

TEST(Creation, LikeTensorsTakeTheLayoutToo) {
  const Tensor image = raw::channels_last(zeros({2, 3, 4, 4}));
  EXPECT_TRUE(ones_like(image).is_channels_last());
  EXPECT_TRUE(zeros_like(raw::permute(zeros({3, 4}), {1, 0})).is_dense());
}

}  // namespace
}  // namespace gradus
