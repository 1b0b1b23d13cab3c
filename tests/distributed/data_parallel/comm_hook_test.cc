#include "gradus/distributed/data_parallel/comm_hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/data_parallel/grad_buckets.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

using V = std::vector<double>;

// Numbers that differ from rank to rank; `seed` tells draws apart.
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
  double rounding;  // relative, of one number
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

}  // namespace
}  // namespace gradus::dist
