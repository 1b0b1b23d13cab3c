// verify: correct models pass. For each fault, the error names the first tensor and the cause.
#include "gradus/distributed/data_parallel/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/models/mnist_net.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Cause = VerifyReport::Cause;

constexpr int64_t kFeatures = 6, kClasses = 3;

data::TensorDataset samples(const Shape& sample, int64_t n = 64) {
  Shape shape = sample;
  shape.insert(0, n);
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < n; ++i) classes.push_back((i * 7 + i / 5) % kClasses);
  return data::TensorDataset(random_tensor(shape), tensor(classes, {n}));
}
data::TensorDataset vectors() { return samples({kFeatures}); }

template <class M> std::unique_ptr<M> make() { return std::make_unique<M>(); }

struct Net : nn::Layer {
  nn::Linear first{this, "first", {.in = kFeatures, .out = 5}};
  nn::Linear last{this, "last", {.in = 5, .out = kClasses}};
  Tensor forward(const Tensor& x) override { return last(relu(first(x))); }
};

struct ConvNet : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 1, .out = 4, .kernel = 3}};
  nn::Linear fc{this, "fc", {.in = 36, .out = kClasses}};
  Tensor forward(const Tensor& x) override {
    return fc(flatten(max_pool2d(relu(conv(x)), {.kernel = 2}), 1));
  }
};

// The convolution's bias has a gradient that is rounding alone.
struct BatchNormNet : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 1, .out = 4, .kernel = 3}};
  nn::BatchNorm2d bn1{this, "bn1", {.features = 4}};
  nn::Linear fc{this, "fc", {.in = 36, .out = kClasses}};
  nn::BatchNorm1d bn2{this, "bn2", {.features = kClasses}};
  Tensor forward(const Tensor& x) override {
    return bn2(fc(flatten(max_pool2d(relu(bn1(conv(x))), {.kernel = 2}), 1)));
  }
};
void synchronize(nn::Module& model) { convert_sync_batchnorm(model); }

TEST(Verify, ARightModelPasses) {
  for (int world : {1, 2, 3, 4}) {
    const VerifyReport report = verify(make<ConvNet>, samples({1, 8, 8}), {.world = world});
    EXPECT_TRUE(report) << report;
    EXPECT_EQ(report.cause, Cause::kNone);
    EXPECT_LT(report.difference, 1e-12);
  }
}

// As docs/guide/verify.md shows it.
TEST(Net, IsTheSameOnFourRanks) {
  const auto report = dist::verify([] { return std::make_unique<Net>(); }, vectors(), {.world = 4});
  EXPECT_TRUE(report) << report;
}

TEST(Verify, SaysWhatItDid) {
  EXPECT_THAT(verify(make<Net>, vectors(), {.world = 4}).text,
              AllOf(HasSubstr("4 ranks agree"), HasSubstr("2 steps of equal batches of 8"),
                    HasSubstr("one of unequal batches of 9, 9, 8, 8")));
  EXPECT_THAT(verify(make<Net>, vectors(), {.world = 4, .unequal = false}).text, Not(HasSubstr("unequal")));
}

TEST(Verify, WeightsAreThoseOfOneInstance) {
  const auto differently = [] {
    manual_seed(get_rank() + 10 * get_world_size());
    return make<Net>();
  };
  const VerifyReport report = verify(differently, vectors(), {.world = 3});
  EXPECT_TRUE(report) << report;
}

TEST(Verify, TheMnistNetworkPassesOnceDropoutIsOff) {
  const data::TensorDataset images = samples({1, 28, 28}, 4);
  const VerifyOptions options{.batch_size = 1, .steps = 1, .unequal = false};
  const VerifyReport with = verify(make<models::MnistNet>, images, options);
  EXPECT_FALSE(with);
  EXPECT_EQ(with.cause, Cause::kRandomness) << with;
  EXPECT_EQ(with.tensor, "loss");
  EXPECT_THAT(with.text, HasSubstr("dropout1, dropout2"));

  VerifyOptions off = options;
  off.prepare = [](nn::Module& m) {
    m.find("dropout1").eval();
    m.find("dropout2").eval();
  };
  const VerifyReport without = verify(make<models::MnistNet>, images, off);
  EXPECT_TRUE(without) << without;
}

TEST(Verify, SynchronizedBatchNormPasses) {
  const VerifyReport report =
      verify(make<BatchNormNet>, samples({1, 8, 8}), {.world = 4, .prepare = synchronize});
  EXPECT_TRUE(report) << report;
  // More than elsewhere: the bias's gradient is rounding, and measured by a thousandth of
  // the largest gradient.
  EXPECT_LT(report.difference, 1e-11);
}

TEST(Verify, PlainBatchNormIsNamed) {
  const VerifyReport report = verify(make<BatchNormNet>, samples({1, 8, 8}), {.world = 2});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.cause, Cause::kBatchNormStatistics) << report;
  EXPECT_EQ(report.tensor, "loss");
  EXPECT_EQ(report.step, 0);
  EXPECT_EQ(report.rank, -1);
  EXPECT_THAT(report.text, AllOf(HasSubstr("bn1, bn2"), HasSubstr("convert_sync_batchnorm")));
}

TEST(Verify, BatchNormThatDoesNotLookAtTheBatchPasses) {
  const VerifyReport report = verify(make<BatchNormNet>, samples({1, 8, 8}), {.prepare = [](nn::Module& m) {
                                       m.find("bn1").eval();
                                       m.find("bn2").eval();
                                     }});
  EXPECT_TRUE(report) << report;
}

Tensor mean_over_the_batch(nn::Layer& net, const data::Batch& b) {
  return nn::cross_entropy(net(b.input), b.target);
}

TEST(Verify, AMeanOverUnequalBatchesIsNamed) {
  const VerifyReport report = verify(make<Net>, vectors(), {.world = 4}, mean_over_the_batch);
  EXPECT_FALSE(report);
  EXPECT_EQ(report.cause, Cause::kUnequalBatches) << report;
  EXPECT_EQ(report.tensor, "loss");
  EXPECT_EQ(report.step, 2);
  EXPECT_THAT(report.text, HasSubstr("global_size"));
  const VerifyReport equal =
      verify(make<Net>, vectors(), {.world = 4, .unequal = false}, mean_over_the_batch);
  EXPECT_TRUE(equal) << equal;
}

TEST(Verify, OfTwoFaultsTheFirstIsNamed) {
  const VerifyReport report = verify(make<BatchNormNet>, samples({1, 8, 8}), {}, mean_over_the_batch);
  EXPECT_EQ(report.cause, Cause::kBatchNormStatistics) << report;
  const VerifyReport converted =
      verify(make<BatchNormNet>, samples({1, 8, 8}), {.prepare = synchronize}, mean_over_the_batch);
  EXPECT_EQ(converted.cause, Cause::kUnequalBatches) << converted;
}

TEST(Verify, TheWeightThatItAdvisesIsRight) {
  const VerifyReport report = verify(make<Net>, vectors(), {.world = 4}, [](Net& net, const data::Batch& b) {
    return mean_over_the_batch(net, b) * (double(b.size()) * get_world_size() / double(b.global_size));
  });
  EXPECT_TRUE(report) << report;
}

TEST(Verify, ASumOverTheBatchIsNamed) {
  const VerifyReport report = verify(make<Net>, vectors(), {.world = 4}, [](Net& net, const data::Batch& b) {
    return nn::cross_entropy(net(b.input), b.target) * double(b.size());
  });
  EXPECT_FALSE(report);
  EXPECT_EQ(report.cause, Cause::kSumOverBatch) << report;
}

// ---- buffers

// Follows the mean of the inputs, and subtracts it from the next batch's.
struct Centered : Net {
  nn::Buffer center{this, "center", zeros({kFeatures})};
  Tensor forward(const Tensor& x) override {
    const Tensor y = Net::forward(x - center);
    raw::copy_(center, center * 0.5 + mean(detach(x), {0}) * 0.5);
    return y;
  }
};

TEST(Verify, ABufferOfLocalDataIsNamed) {
  const VerifyReport report = verify(make<Centered>, vectors(), {.world = 3});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.cause, Cause::kBuffer) << report;
  EXPECT_EQ(report.tensor, "buffer center");
  EXPECT_EQ(report.step, 0);
  EXPECT_EQ(report.rank, 1);
}

struct SamplesSeen : Net {
  nn::Buffer seen{this, "seen", scalar(0, {.dtype = DType::kI64})};
  Tensor forward(const Tensor& x) override {
    raw::fill_(seen, double(seen.item<int64_t>() + x.size(0)));
    return Net::forward(x);
  }
};

TEST(Verify, ABufferThatRanksAgreeOnButNotWithOneRankIsNamed) {
  const VerifyReport report = verify(make<SamplesSeen>, vectors(), {});
  EXPECT_EQ(report.cause, Cause::kBuffer) << report;
  EXPECT_EQ(report.tensor, "buffer seen");
  EXPECT_EQ(report.rank, -1);
}

// The buffer has its effect before it can be compared.
struct CenteredAtOnce : Net {
  nn::Buffer center{this, "center", zeros({kFeatures})};
  Tensor forward(const Tensor& x) override {
    raw::copy_(center, mean(detach(x), {0}));
    return Net::forward(x - center);
  }
};

TEST(Verify, ABufferThatChangesTheLossIsNamedAsTheCause) {
  const VerifyReport report = verify(make<CenteredAtOnce>, vectors(), {});
  EXPECT_EQ(report.cause, Cause::kBuffer) << report;
  EXPECT_EQ(report.tensor, "loss");
  EXPECT_THAT(report.text, HasSubstr("updates center"));
}

struct CenteredTogether : Net {
  nn::Buffer center{this, "center", zeros({kFeatures})};
  Tensor forward(const Tensor& x) override {
    Tensor of_all = raw::clone(mean(detach(x), {0}));
    all_reduce(of_all, {.op = ReduceOp::kMean});
    raw::copy_(center, of_all);
    return Net::forward(x - center);
  }
};

TEST(Verify, TheReductionThatItAdvisesIsRight) {
  const VerifyReport report = verify(make<CenteredTogether>, vectors(), {.unequal = false});
  EXPECT_TRUE(report) << report;
}

// ---- random numbers, and the rank

struct DropoutNet : Net {
  nn::Dropout drop{this, "drop"};
  Tensor forward(const Tensor& x) override { return last(drop(relu(first(x)))); }
};

TEST(Verify, DropoutIsNamed) {
  const VerifyReport report = verify(make<DropoutNet>, vectors(), {.world = 4});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.cause, Cause::kRandomness) << report;
  EXPECT_THAT(report.text, HasSubstr("drop draws"));
}

struct NoiseNet : Net {
  Tensor forward(const Tensor& x) override {
    return Net::forward(x + randn(x.shape(), {.dtype = x.dtype()}) * 0.1);
  }
};

TEST(Verify, NoiseIsNamedAlsoWhenAllRanksDrawTheSame) {
  const VerifyReport same = verify(make<NoiseNet>, vectors(), {});
  EXPECT_EQ(same.cause, Cause::kRandomness) << same;
  const VerifyReport different =
      verify(make<NoiseNet>, vectors(), {.prepare = [](nn::Module&) { manual_seed(get_rank()); }});
  EXPECT_EQ(different.cause, Cause::kRandomness) << different;
}

// The seed does not come from outside.
struct RankSeededNet : NoiseNet {
  Tensor forward(const Tensor& x) override {
    manual_seed(get_rank());
    return NoiseNet::forward(x);
  }
};

TEST(Verify, NoiseThatTheRankSeedsIsNamed) {
  const VerifyReport report = verify(make<RankSeededNet>, vectors(), {});
  EXPECT_EQ(report.cause, Cause::kRandomness) << report;
}

struct OwnNumbersNet : Net {
  std::mt19937 numbers{unsigned(get_rank())};
  Tensor forward(const Tensor& x) override { return Net::forward(x * (1 + double(numbers() % 8) / 8)); }
};

TEST(Verify, NumbersOfTheModelsOwnAreTheRanks) {
  const VerifyReport report = verify(make<OwnNumbersNet>, vectors(), {});
  EXPECT_EQ(report.cause, Cause::kDependsOnRank) << report;
  EXPECT_EQ(report.tensor, "loss");
}

// Writes where nothing of this step looks any more.
struct UnequalUpdate : Net {
  Tensor forward(const Tensor& x) override {
    const Tensor y = Net::forward(x);
    if (get_rank() == 2) last.bias.mutable_data<double>()[1] += 0.25;
    return y;
  }
};

TEST(Verify, AParameterThatOneRankChangesIsNamed) {
  const VerifyReport report = verify(make<UnequalUpdate>, vectors(), {.world = 4});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.tensor, "parameter last.bias");
  EXPECT_EQ(report.step, 0);
  EXPECT_EQ(report.rank, 2);
  EXPECT_EQ(report.cause, Cause::kDependsOnRank) << report;
  EXPECT_THAT(report.text, HasSubstr("rank 2"));
}

// Random changes of the samples are read once.
struct Augmented : data::Dataset {
  int64_t size() const override { return 40; }
  data::Sample get(int64_t i) const override {
    return {randn({kFeatures}), scalar(double(i % kClasses), {.dtype = DType::kI64})};
  }
};

TEST(Verify, RandomSamplesAreTheSameInAllRuns) {
  const VerifyReport report = verify(make<Net>, Augmented(), {.world = 4});
  EXPECT_TRUE(report) << report;
}

// ---- other faults

// Twice the gradient for every rank there is.
struct Doubled : autograd::Function {
  std::vector<Tensor> forward(const std::vector<Tensor>& xs) override { return {raw::clone(xs[0])}; }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override {
    return {dys[0] * double(get_world_size())};
  }
};
struct WrongRule : Net {
  Tensor forward(const Tensor& x) override {
    return last(relu(autograd::apply(std::make_shared<Doubled>(), {first(x)})[0]));
  }
};

TEST(Verify, AWrongRuleIsNamedByTheFirstGradientThatItSpoils) {
  const VerifyReport report = verify(make<WrongRule>, vectors(), {.world = 2});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.tensor, "gradient of first.weight");
  EXPECT_NEAR(report.difference, 0.5, 1e-9);
  EXPECT_EQ(report.cause, Cause::kUnknown) << report;
  EXPECT_THAT(report.text, HasSubstr("look at the backward"));
}

Tensor of_pairs(Net& net, const data::Batch& b) {
  const Tensor y = net(b.input);
  return mean(square(matmul(y, transpose(y, 0, 1)) - 1));
}

TEST(Verify, ALossOfPairsIsOfUnknownCauseAndSaysWhereToLook) {
  const VerifyReport report = verify(make<Net>, vectors(), {.world = 2}, of_pairs);
  EXPECT_FALSE(report);
  EXPECT_EQ(report.cause, Cause::kUnknown) << report;
  EXPECT_THAT(report.text, HasSubstr("compares samples with each other"));
}

struct Moe : nn::Layer {
  nn::Linear negative{this, "negative", {.in = kFeatures, .out = kClasses}};
  nn::Linear positive{this, "positive", {.in = kFeatures, .out = kClasses}};
  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < x.size(0); ++i) {
      const Tensor row = narrow(x, 0, i, 1);
      rows.push_back(row.to_vector<double>()[0] < 0 ? negative(row) : positive(row));
    }
    return cat(rows, 0);
  }
};

TEST(Verify, RanksMayReachDifferentParameters) {
  const VerifyReport report = verify(make<Moe>, vectors(), {.world = 4, .batch_size = 1});
  EXPECT_TRUE(report) << report;
}

TEST(Verify, WhatTheModelThrowsArrives) {
  struct Picky : Net {
    Tensor forward(const Tensor& x) override {
      if (get_world_size() == 4 && get_rank() == 2) throw IndexError("Picky", "not on this rank");
      return Net::forward(x);
    }
  };
  EXPECT_ERROR(IndexError, verify(make<Picky>, vectors(), {.world = 4}), "not on this rank");

  struct Broken : Net {
    Tensor forward(const Tensor&) override { throw std::runtime_error("never"); }
  };
  EXPECT_THROW(verify(make<Broken>, vectors(), {.world = 4}), std::runtime_error);
}

TEST(Verify, WhatCannotBeComparedIsAnError) {
  EXPECT_ERROR(ValueError, verify(make<Net>, samples({kFeatures}, 3), {.world = 4}), "4 ranks", "got 3");
  EXPECT_ERROR(ValueError, verify(make<Net>, vectors(), {.world = 0}), "world >= 1", "got 0");
  EXPECT_ERROR(ValueError,
               verify(make<Net>, vectors(), {},
                      [](Net& n, const data::Batch& b) { return mean(log(n(b.input) * 0.0 - 1)); }),
               "finite loss", "step 0");

  struct Split : nn::Layer {
    nn::Linear fc{this, "fc", {.in = kFeatures, .out = kClasses * get_world_size()}};
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  EXPECT_ERROR(ValueError, verify(make<Split>, vectors(), {}), "fc.weight", "[6,6]", "[3,6]");
}

struct Unrecorded : Augmented {
  data::Sample get(int64_t i) const override {
    EXPECT_TRUE(Context::current().recordings.empty());
    return Augmented::get(i);
  }
};

TEST(Verify, TheCallersContextStaysAsItIs) {
  manual_seed(5);
  rand({3});
  const auto numbers = Context::current().generator->state();
  const Tensor w = ones({2});
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  const Tensor loss = sum(square(w));
  const size_t recordings = Context::current().recordings.size();
  verify(make<DropoutNet>, Unrecorded(), {.world = 3});
  try {
    verify(make<Net>, Augmented(), {},
           [](Net&, const data::Batch&) -> Tensor { throw ValueError("loss", "none"); });
    ADD_FAILURE();
  } catch (const ValueError&) {
  }
  EXPECT_EQ(Context::current().generator->state(), numbers);
  EXPECT_EQ(Context::current().recordings.size(), recordings);
  EXPECT_EQ(get_world_size(), 1);
  gm.backward(loss);
  EXPECT_EQ(w.grad().to_vector<double>(), (std::vector<double>{2, 2}));
}

}  // namespace
}  // namespace gradus::dist
