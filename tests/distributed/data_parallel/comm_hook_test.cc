// Communication hooks of data parallelism on buckets of gradients: all-reduce, 16-bit compression, and
// PowerSGD (Vogels et al. 2019, arXiv:1905.13727), against means over ranks computed in f64. Ranks are
// threads.
#include "gradus/distributed/data_parallel/comm_hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/low_rank.h"
#include "gradus/distributed/data_parallel/post_local_sgd.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/data_parallel/grad_buckets.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using V = std::vector<double>;

// Values in [-1, 1] that depend on rank, position and seed.
Tensor values_of(int rank, const Shape& shape, DType dtype = DType::kF32, int seed = 0) {
  Tensor x = empty(shape, {.dtype = DType::kF64});
  double* p = x.mutable_data<double>();
  for (int64_t i = 0; i < x.numel(); ++i) p[i] = std::sin(double(i + 1) * (rank + 1) + seed);
  return to(x, dtype);
}

V mean_of_values(int world, const Shape& shape, DType dtype = DType::kF32) {
  V mean(shape.product());
  for (int rank = 0; rank < world; ++rank) {
    const V v = values_of(rank, shape, dtype).to_vector<double>();
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += v[i] / world;
  }
  return mean;
}

void expect_equal_on_all_ranks(const Tensor& x) {
  for (const Tensor& other : all_gather(x)) EXPECT_EQ(other.to_vector<double>(), x.to_vector<double>());
}

TEST(CommHook, TheAllReduceGivesWhatThereIsWithoutAHook) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg})
    run_ranks(3, [=] {
      const Tensor x = values_of(get_rank(), {37});
      const GradBucket bucket = make_bucket({x}, {x}, op);
      all_reduce(x, {.op = op});
      run_hook(allreduce_hook(), bucket);
      EXPECT_EQ(bucket.buffer.to_vector<float>(), x.to_vector<float>());
    });
}

TEST(CommHook, AMeanCountsTheRanksThatTheBucketSays) {
  for (const CommHook& hook : {allreduce_hook(), fp16_compress_hook(), bf16_compress_hook()})
    run_ranks(3, [=] {
      GradBucket bucket = make_bucket({ones({4})}, {ones({4})});
      bucket.divisor = 2;
      run_hook(hook, bucket);
      EXPECT_THAT(bucket.buffer.to_vector<double>(), Each(1.5));
    });
}

struct Compression {
  const char* name;
  CommHook hook;
  double rounding;  // bound of the rounding error of a number below 1
};
class Compressed : public testing::TestWithParam<Compression> {};
INSTANTIATE_TEST_SUITE_P(CommHook, Compressed,
                         testing::Values(Compression{"f16", fp16_compress_hook(), 0x1p-11},
                                         Compression{"bf16", bf16_compress_hook(), 0x1p-9}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Compressed, Sends16BitsAndRoundsNoMoreThanTheyMust) {
  const auto& [name, hook, rounding] = GetParam();
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const bool messages : {false, true})
      run_ranks(4,
                [&] {
                  const Tensor x = values_of(get_rank(), {1000}, dtype);
                  const GradBucket bucket = make_bucket({x}, {x});
                  run_hook(hook, bucket);
                  const V given = bucket.buffer.to_vector<double>();
                  const std::vector<std::string> calls = last_calls();
                  EXPECT_EQ(calls.at(0), concat("all_reduce(", name, "[1000], sum)"));
                  expect_equal_on_all_ranks(bucket.buffer);
                  const V mean = mean_of_values(4, {1000}, dtype);
                  // Numbers are at most 1: each rank's quarter is rounded, and a sum of at most 1
                  // three times at most.
                  for (size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(given[i], mean[i], 4 * rounding);
                  double largest = 0;
                  for (size_t i = 0; i < mean.size(); ++i)
                    largest = std::max(largest, std::abs(given[i] - mean[i]));
                  EXPECT_GT(largest, rounding / 16) << "it was rounded at all";
                },
                {.messages_only = messages});
}

TEST_P(Compressed, AMeanOfLargeNumbersStaysInRange) {
  run_ranks(4, [] {
    const Tensor x = ones({8}) * 60000;  // their sum is infinite in f16
    const GradBucket bucket = make_bucket({x}, {x});
    run_hook(GetParam().hook, bucket);
    for (const double v : bucket.buffer.to_vector<double>())
      EXPECT_NEAR(v, 60000, 60000 * 4 * GetParam().rounding);
  });
}

TEST_P(Compressed, ASumIsNotDivided) {
  run_ranks(2, [] {
    const GradBucket bucket = make_bucket({ones({3})}, {ones({3})}, ReduceOp::kSum);
    run_hook(GetParam().hook, bucket);
    EXPECT_THAT(bucket.buffer.to_vector<double>(), Each(2));
  });
}

TEST_P(Compressed, GradientsOf16BitsGoAsTheyAre) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    run_ranks(2, [=] {
      const Tensor x = values_of(get_rank(), {100}, dtype);
      const GradBucket bucket = make_bucket({x}, {x});
      all_reduce(x, {.op = ReduceOp::kAvg});
      run_hook(GetParam().hook, bucket);
      EXPECT_EQ(bucket.buffer.to_vector<double>(), x.to_vector<double>());
    });
}

// ---- quantization ----

TEST(QuantizationHook, RoundsToStepsOfTheRange) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg})
      run_ranks(3, [=] {
        const Tensor x = values_of(get_rank(), {1000}, dtype);
        const GradBucket bucket = make_bucket({x}, {x}, op);
        run_hook(quantization_pertensor_hook(), bucket);
        EXPECT_EQ(last_calls().at(1), "all_gather(u8[1000])");
        expect_equal_on_all_ranks(bucket.buffer);
        const V given = bucket.buffer.to_vector<double>(), mean = mean_of_values(3, {1000}, dtype);
        // Numbers from -1 to 1: a step is at most 2 / 255, and bf16 rounds the result.
        const double factor = op == ReduceOp::kSum ? 3 : 1;
        const double error = factor * (2.01 / 255 + (dtype == DType::kBF16 ? 0x1p-8 : 0));
        double largest = 0;
        for (size_t i = 0; i < mean.size(); ++i) {
          ASSERT_NEAR(given[i], factor * mean[i], error);
          largest = std::max(largest, std::abs(given[i] - factor * mean[i]));
        }
        EXPECT_GT(largest, error / 16) << "it was rounded at all";
      });
}

TEST(QuantizationHook, KeepsEqualNumbersAndZeros) {
  const auto mean_of = [](const std::vector<float>& zero, const std::vector<float>& one) {
    const Tensor x = tensor<float>(get_rank() == 0 ? zero : one, {int64_t(zero.size())});
    const GradBucket bucket = make_bucket({x}, {x});
    run_hook(quantization_pertensor_hook(), bucket);
    return bucket.buffer.to_vector<double>();
  };
  run_ranks(2, [&] {
    EXPECT_THAT(mean_of({1}, {2}), Each(testing::DoubleNear(1.5, 1e-6)));
    EXPECT_THAT(mean_of({1, 1, 1}, {-2, -2, -2}), Each(testing::DoubleNear(-0.5, 1e-6)));
    EXPECT_THAT(mean_of({0, 0}, {0, 0}), Each(0));
    const V mixed = mean_of({-0.3f, 0, 0.77f}, {0.1f, 0, 5});
    EXPECT_EQ(mixed[1], 0);
    EXPECT_NEAR(mixed[0], -0.1, 0.02);
    for (const double v : mean_of({1e-45f, 4e-43f}, {0, 0})) EXPECT_NEAR(v, 0, 1e-42) << "subnormal steps";
  });
}

TEST(QuantizationHook, NotFiniteNumbersReachAllRanks) {
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)})
    run_ranks(2, [=] {
      const GradBucket bucket =
          make_bucket({ones({2})}, {tensor<float>({1, get_rank() == 1 ? float(bad) : 2.0f})});
      run_hook(quantization_pertensor_hook(), bucket);
      for (const double v : bucket.buffer.to_vector<double>()) EXPECT_FALSE(std::isfinite(v)) << bad;
    });
}

// ---- post-local SGD ----

// The gradient of rank r is r + 1.
double reduced_by(const CommHook& hook, ReduceOp op = ReduceOp::kAvg) {
  const GradBucket bucket = make_bucket({ones({2})}, {ones({2}) * double(get_rank() + 1)}, op);
  run_hook(hook, bucket);
  return bucket.buffer.to_vector<double>()[0];
}

TEST(PostLocalSGD, ReducesWithinSubgroupsAfterItsStart) {
  run_ranks(4, [] {
    const int rank = get_rank();
    const Group pair = Group().split(rank / 2);
    const CommHook hook = post_local_sgd_hook({.start_local_sgd_iter = 2, .subgroup = pair});
    EXPECT_EQ(reduced_by(hook), 2.5);
    EXPECT_EQ(reduced_by(hook), 2.5);
    EXPECT_EQ(reduced_by(hook), rank < 2 ? 1.5 : 3.5);
    EXPECT_EQ(reduced_by(hook, ReduceOp::kSum), rank < 2 ? 3 : 7);
    EXPECT_EQ(reduced_by(post_local_sgd_hook({.subgroup = pair, .post_local_gradient_allreduce = false})),
              rank + 1);
    EXPECT_EQ(reduced_by(post_local_sgd_hook()), 2.5) << "one host";
    const Group first = Group().split(rank == 0 ? 0 : -1);
    if (rank > 0) {
      EXPECT_THROW(post_local_sgd_hook({.subgroup = first}), ValueError);
    }
  });
}

TEST(PostLocalSGD, CountsBackwardsOfSeveralBuckets) {
  run_ranks(2, [] {
    const CommHook hook =
        post_local_sgd_hook({.start_local_sgd_iter = 1, .post_local_gradient_allreduce = false});
    const auto reduced = [&](bool is_last) {
      GradBucket bucket = make_bucket({ones({1})}, {ones({1}) * double(get_rank())});
      bucket.is_last = is_last;
      run_hook(hook, bucket);
      return bucket.buffer.to_vector<double>()[0];
    };
    EXPECT_EQ(reduced(false), 0.5);
    EXPECT_EQ(reduced(true), 0.5);
    EXPECT_EQ(reduced(false), get_rank());
  });
}

TEST(PostLocalSGD, AveragesParametersAfterEachPeriod) {
  run_ranks(2, [] {
    PeriodicModelAverager averager({.period = 3, .warmup_steps = 2});
    std::vector<double> means;
    for (int i = 0; i < 9; ++i) {
      const Tensor p = ones({2}) * double(get_rank());
      averager.average_parameters({p});
      means.push_back(p.to_vector<double>()[1]);
    }
    const double own = get_rank();
    EXPECT_EQ(means, (V{own, own, 0.5, own, own, 0.5, own, own, 0.5}));
    EXPECT_EQ(averager.step(), 9);
  });
}

TEST(PostLocalSGD, RefusesCountsThatAreNone) {
  EXPECT_THROW(post_local_sgd_hook({.start_local_sgd_iter = -1}), ValueError);
  EXPECT_THROW(PeriodicModelAverager({.period = 0}), ValueError);
  EXPECT_THROW(PeriodicModelAverager({.period = 1}).set_step(-1), ValueError);
  EXPECT_THROW(PeriodicModelAverager({.period = 1, .warmup_steps = -1}), ValueError);
}

TEST(CommHook, NoopKeepsEachRanksOwnAndSendsNothing) {
  run_ranks(2, [] {
    barrier();
    const Tensor x = values_of(get_rank(), {10});
    const GradBucket bucket = make_bucket({x}, {x});
    run_hook(noop_hook(), bucket);
    EXPECT_EQ(bucket.buffer.to_vector<float>(), x.to_vector<float>());
    EXPECT_THAT(last_calls().at(0), HasSubstr("barrier"));
  });
}

// ---- in a callback ----

// Three parameters, each in a bucket of its own.
struct Three {
  std::vector<Tensor> params = {ones({4}), ones({2, 3}), ones({5})};
  GradManager gm;

  explicit Three(const CommHook& hook, ReduceOp op = ReduceOp::kMean) {
    gm.attach(params,
              make_allreduce_cb(op, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .comm_hook = hook}));
  }
  void step() {
    auto recording = gm.record();
    Tensor loss = scalar(0);
    for (const Tensor& p : params) loss = loss + sum(p * values_of(get_rank(), p.shape(), DType::kF32));
    gm.backward(loss);
  }
  std::vector<V> take_gradients() {
    std::vector<V> all;
    for (const Tensor& p : params) {
      all.push_back(p.grad().to_vector<double>());
      p.set_grad({});
    }
    return all;
  }
};

TEST(CommHookInCallback, WhatAHookThrowsOnOneRankEndsTheStepOnAll) {
  const auto errors = errors_of(3, [] {
    const CommHook hook = [](const GradBucket& bucket) -> std::function<void()> {
      if (get_rank() == 1 && bucket.index == 1) throw ValueError("my_hook", "out of luck");
      return allreduce_hook()(bucket);
    };
    Three(hook).step();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("out of luck"))));
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
}

// ---- PowerSGD ----

Tensor normal(const Shape& shape, uint64_t seed, uint64_t draw, DType dtype = DType::kF64) {
  Tensor x = empty(shape, {.dtype = dtype});
  raw::normal_kernel(x, 0, 1, {{seed, draw}});
  return x;
}

double norm_of(const V& v) {
  double square = 0;
  for (const double x : v) square += x * x;
  return std::sqrt(square);
}

double distance(const V& a, const V& b) {
  V difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return norm_of(difference);
}

TEST(LowRank, RowsBecomeOrthonormalAlsoWhenTheyNearlyDependOnEachOther) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const double apart : {1.0, 1e-5}) {
      const Tensor common = normal({1, 50}, 1, 0);
      const Tensor x = to(contiguous(common + normal({4, 50}, 2, 0) * apart), dtype);
      internal::orthonormalize(x, 0);
      const Tensor y = to(x, DType::kF64);
      const V products = matmul(y, transpose(y, 0, 1)).to_vector<double>();
      const double epsilon = dtype == DType::kF32 ? 1e-6 : 1e-14;
      for (int i = 0; i < 16; ++i) EXPECT_NEAR(products[i], i % 5 == 0 ? 1 : 0, epsilon);
    }
}

// Compresses from the third backward on.
PowerSGDOptions soon(PowerSGDOptions options) {
  options.start_iter = 2;
  return options;
}

// A PowerSGD hook that has run its two uncompressed backwards.
CommHook started(const PowerSGDOptions& options, const std::vector<Tensor>& params) {
  const CommHook hook = power_sgd_hook(soon(options));
  for (int i = 0; i < 2; ++i) {
    std::vector<Tensor> gradients;
    for (const Tensor& p : params) gradients.push_back(zeros(p.shape(), {.dtype = p.dtype()}));
    run_hook(hook, make_bucket(params, gradients));
  }
  return hook;
}

V mean_over_ranks(const Tensor& x) {
  const Tensor mean = clone(x);
  all_reduce(mean, {.op = ReduceOp::kAvg});
  return mean.to_vector<double>();
}

// tests/golden/power_sgd_test.cc compares lower ranks with PyTorch.
TEST(PowerSGD, ARankThatIsHighEnoughGivesTheMean) {
  for (const Shape& shape : {Shape{6, 4}, Shape{4, 6}, Shape{5, 5}, Shape{3, 2, 2}})
    for (const bool warm : {true, false})
      run_ranks(3, [&] {
        const Tensor p = ones(shape, {.dtype = DType::kF64});
        const CommHook hook = started(
            {.matrix_approximation_rank = 100, .min_compression_rate = 1e-3, .warm_start = warm}, {p});
        for (int step = 0; step < 4; ++step) {
          const Tensor g = normal(shape, get_rank(), step);
          const V mean = mean_over_ranks(g);
          const GradBucket bucket = make_bucket({p}, {g});
          run_hook(hook, bucket);
          // Projections onto bases that are orthonormal to some 1e-15, of at most 6 columns; condition
          // numbers of such P are below 1e3.
          EXPECT_LT(distance(bucket.gradients[0].to_vector<double>(), mean), 1e-11 * norm_of(mean));
        }
      });
}

// |sum of the results of `steps` equal gradients - steps * mean| / |mean|, with rank 1.
double lag(int steps, bool feedback) {
  double lag = 0;
  run_ranks(2, [&] {
    const Tensor p = ones({16, 16}), g = normal({16, 16}, get_rank(), 0, DType::kF32);
    const CommHook hook = started({.use_error_feedback = feedback}, {p});
    V sum(256);
    for (int step = 0; step < steps; ++step) {
      const GradBucket bucket = make_bucket({p}, {g});
      run_hook(hook, bucket);
      const V given = bucket.gradients[0].to_vector<double>();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += given[i];
    }
    V all = mean_over_ranks(g);
    const double one = norm_of(all);
    for (double& v : all) v *= steps;
    if (get_rank() == 0) lag = distance(sum, all) / one;
  });
  return lag;
}

TEST(PowerSGD, WithErrorFeedbackNothingIsLostOnlyLate) {
  // A rank-1 approximation of a 16x16 matrix delays gradients by at most about 16 steps.
  EXPECT_LT(lag(50, true), 16);
  EXPECT_LT(lag(200, true), 16);
  EXPECT_GT(lag(50, false), 0.5 * 50);
}

TEST(PowerSGD, AMeanCountsTheRanksThatTheBucketSaysAndASumNone) {
  run_ranks(3, [] {
    const Tensor p = ones({4, 4}), b = ones({4});
    for (const bool sum : {false, true}) {
      const CommHook hook = started({.matrix_approximation_rank = 4, .min_compression_rate = 0.1}, {p, b});
      GradBucket bucket = make_bucket({p, b}, {normal({4, 4}, 1, 0, DType::kF32), ones({4})});
      if (sum) bucket.op = ReduceOp::kSum;
      bucket.divisor = 2;
      const V whole = bucket.gradients[0].to_vector<double>();
      run_hook(hook, bucket);
      const V given = bucket.gradients[0].to_vector<double>();
      for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(given[i], whole[i] * (sum ? 3 : 1.5), 1e-5);
      EXPECT_THAT(bucket.gradients[1].to_vector<double>(), Each(sum ? 3 : 1.5));
    }
  });
}

TEST(PowerSGD, RanksGetTheSameBitsWhateverTheirThreads) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const bool messages : {false, true})
      run_ranks(3,
                [=] {
                  set_num_threads(get_rank() + 1);
                  const Tensor p = ones({150, 300}, {.dtype = dtype}), b = ones({33}, {.dtype = dtype});
                  const CommHook hook = started({.matrix_approximation_rank = 4}, {p, b});
                  for (int step = 0; step < 3; ++step) {
                    const GradBucket bucket = make_bucket(
                        {p, b},
                        {normal({150, 300}, get_rank(), step, dtype), normal({33}, get_rank(), step, dtype)});
                    run_hook(hook, bucket);
                    expect_equal_on_all_ranks(bucket.buffer);
                  }
                },
                {.messages_only = messages});
}

TEST(PowerSGD, TheFirstBackwardsAreNotCompressedWhateverTheNumberOfBuckets) {
  run_ranks(2, [] {
    const Tensor p = ones({20, 20});
    const CommHook hook = power_sgd_hook({.start_iter = 3});
    for (int backward = 0; backward < 5; ++backward)
      for (const bool last : {false, true}) {
        const Tensor g = normal({20, 20}, get_rank(), backward, DType::kF32);
        const V mean = mean_over_ranks(g);
        GradBucket bucket = make_bucket({p}, {g});
        bucket.is_last = last;
        run_hook(hook, bucket);
        const double off = distance(bucket.buffer.to_vector<double>(), mean) / norm_of(mean);
        if (backward < 3)
          EXPECT_EQ(off, 0);
        else
          EXPECT_GT(off, 0.1);
      }
  });
}

TEST(PowerSGD, WhatIsSentIsTwoSmallMessagesAndWhatDoesNotShrinkGoesAlong) {
  run_ranks(2, [] {
    // [10,5] with rank 2 needs 30 elements of 50, more than the half that min_compression_rate = 2 allows.
    const std::vector<Tensor> params = {ones({100, 50}), ones({100}), ones({10, 5}), ones({30, 40})};
    const CommHook hook = started({.matrix_approximation_rank = 2}, params);
    EXPECT_THAT(last_calls().at(0), HasSubstr("f32[6350]"));
    run_hook(hook, make_bucket(params, params));
    const std::vector<std::string> calls = last_calls();
    EXPECT_THAT(calls.at(0), HasSubstr("f32[180]"));  // Qs: 2 * (50 + 40)
    EXPECT_THAT(calls.at(1), HasSubstr("f32[410]"));  // Ps, and the rest: 2 * (100 + 30) + 100 + 50
    EXPECT_THAT(calls.at(2), HasSubstr("f32[6350]"));
  });
}

TEST(PowerSGD, GradientsOfZeroLoseNoDirection) {
  run_ranks(2, [] {
    const Tensor p = ones({6, 6});
    const CommHook hook = started({.matrix_approximation_rank = 6, .min_compression_rate = 0.1}, {p});
    for (int step = 0; step < 3; ++step) {
      const GradBucket zero = make_bucket({p}, {zeros({6, 6})});
      run_hook(hook, zero);
      EXPECT_THAT(zero.buffer.to_vector<double>(), Each(0));
    }
    const Tensor g = normal({6, 6}, get_rank(), 0, DType::kF32);
    const V mean = mean_over_ranks(g);
    const GradBucket bucket = make_bucket({p}, {g});
    run_hook(hook, bucket);
    EXPECT_LT(distance(bucket.buffer.to_vector<double>(), mean), 1e-4 * norm_of(mean));
    expect_equal_on_all_ranks(bucket.buffer);
  });
}

TEST(PowerSGD, SmallAndLargeGradientsStayInRange) {
  for (const double scale : {1e-25, 1e25})
    run_ranks(2, [=] {
      const Tensor p = ones({6, 6});
      const CommHook hook = started({.matrix_approximation_rank = 6, .min_compression_rate = 0.1}, {p});
      for (int step = 0; step < 4; ++step) {  // P and Q must not grow with powers of `scale`
        const Tensor g = normal({6, 6}, get_rank(), step, DType::kF32) * scale;
        const V mean = mean_over_ranks(g);
        const GradBucket bucket = make_bucket({p}, {g});
        run_hook(hook, bucket);
        EXPECT_LT(distance(bucket.buffer.to_vector<double>(), mean), 1e-4 * norm_of(mean));
      }
    });
}

TEST(PowerSGD, NanAndInfinityReachAllRanksAndLeaveNothingBehind) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    run_ranks(2, [=] {
      const Tensor p = ones({20, 20});
      const CommHook hook = started({}, {p});
      Tensor g = normal({20, 20}, get_rank(), 0, DType::kF32);
      if (get_rank() == 1) g.mutable_data<float>()[37] = bad;
      const GradBucket spoilt = make_bucket({p}, {g});
      run_hook(hook, spoilt);
      EXPECT_GE(internal::first_not_finite(spoilt.buffer), 0);
      for (int step = 1; step < 3; ++step) {
        const GradBucket next = make_bucket({p}, {normal({20, 20}, get_rank(), step, DType::kF32)});
        run_hook(hook, next);
        EXPECT_EQ(internal::first_not_finite(next.buffer), -1);
        expect_equal_on_all_ranks(next.buffer);
      }
    });
}

TEST(PowerSGD, GradientsOf16BitsGoUncompressed) {
  run_ranks(2, [] {
    const Tensor p = ones({20, 20}, {.dtype = DType::kBF16});
    const CommHook hook = started({}, {p});
    const GradBucket bucket = make_bucket({p}, {p});
    run_hook(hook, bucket);
    EXPECT_THAT(bucket.buffer.to_vector<double>(), Each(1));
    EXPECT_THAT(last_calls().at(0), HasSubstr("bf16[400]"));
  });
}

TEST(PowerSGD, AParameterThatIsDroppedIsForgotten) {
  bool released = false;
  std::vector<float> memory(400);
  Tensor p = from_blob(memory.data(), {20, 20}, {}, [&] { released = true; });
  const Tensor other = ones({20, 20});
  const CommHook hook = started({}, {p, other});
  run_hook(hook, make_bucket({p, other}, {other, other}));
  p = Tensor();
  EXPECT_FALSE(released);
  run_hook(hook, make_bucket({other}, {other}));
  EXPECT_TRUE(released);
}

TEST(PowerSGD, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(power_sgd_hook({.matrix_approximation_rank = 0}), ValueError);
  EXPECT_THROW(power_sgd_hook({.start_iter = 1}), ValueError);
  EXPECT_THROW(power_sgd_hook({.start_iter = 1, .warm_start = false}), ValueError);
  EXPECT_THROW(power_sgd_hook({.start_iter = 1, .use_error_feedback = false}), ValueError);
  EXPECT_NO_THROW(power_sgd_hook({.start_iter = 0, .use_error_feedback = false, .warm_start = false}));
  EXPECT_THROW(power_sgd_hook({.min_compression_rate = 0}), ValueError);
  EXPECT_THROW(power_sgd_hook({.orthogonalization_epsilon = -1}), ValueError);
}

}  // namespace
}  // namespace gradus::dist
