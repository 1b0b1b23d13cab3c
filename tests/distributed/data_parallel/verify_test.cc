// verify, which trains a model on one rank and on several and compares losses, gradients, parameters and
// buffers: correct models pass; for each fault, the report names the first tensor that differs and the cause.
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

// The convolution's bias has no effect before the batch norm: its gradient is rounding error.
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

Tensor mean_over_the_batch(nn::Layer& net, const data::Batch& b) {
  return nn::cross_entropy(net(b.input), b.target);
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

struct SamplesSeen : Net {
  nn::Buffer seen{this, "seen", scalar(0, {.dtype = DType::kI64})};
  Tensor forward(const Tensor& x) override {
    raw::fill_(seen, double(seen.item<int64_t>() + x.size(0)));
    return Net::forward(x);
  }
};

// The buffer changes the loss before buffers are compared.
struct CenteredAtOnce : Net {
  nn::Buffer center{this, "center", zeros({kFeatures})};
  Tensor forward(const Tensor& x) override {
    raw::copy_(center, mean(detach(x), {0}));
    return Net::forward(x - center);
  }
};

struct CenteredTogether : Net {
  nn::Buffer center{this, "center", zeros({kFeatures})};
  Tensor forward(const Tensor& x) override {
    Tensor of_all = raw::clone(mean(detach(x), {0}));
    all_reduce(of_all, {.op = ReduceOp::kMean});
    raw::copy_(center, of_all);
    return Net::forward(x - center);
  }
};

// ---- random numbers, and the rank

struct DropoutNet : Net {
  nn::Dropout drop{this, "drop"};
  Tensor forward(const Tensor& x) override { return last(drop(relu(first(x)))); }
};

struct NoiseNet : Net {
  Tensor forward(const Tensor& x) override {
    return Net::forward(x + randn(x.shape(), {.dtype = x.dtype()}) * 0.1);
  }
};

// Noise with a seed of its own on each rank.
struct RankSeededNet : NoiseNet {
  Tensor forward(const Tensor& x) override {
    manual_seed(get_rank());
    return NoiseNet::forward(x);
  }
};

struct OwnNumbersNet : Net {
  std::mt19937 numbers{unsigned(get_rank())};
  Tensor forward(const Tensor& x) override { return Net::forward(x * (1 + double(numbers() % 8) / 8)); }
};

// Changes a parameter on rank 2 after its use in this step.
struct UnequalUpdate : Net {
  Tensor forward(const Tensor& x) override {
    const Tensor y = Net::forward(x);
    if (get_rank() == 2) last.bias.mutable_data<double>()[1] += 0.25;
    return y;
  }
};

// Random samples, which verify reads once for all runs.
struct Augmented : data::Dataset {
  int64_t size() const override { return 40; }
  data::Sample get(int64_t i) const override {
    return {randn({kFeatures}), scalar(double(i % kClasses), {.dtype = DType::kI64})};
  }
};

// ---- other faults

// The identity with a wrong backward: the gradient times the number of ranks.
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

Tensor of_pairs(Net& net, const data::Batch& b) {
  const Tensor y = net(b.input);
  return mean(square(matmul(y, transpose(y, 0, 1)) - 1));
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

// A call of verify() and the report expected of it.
struct Row {
  const char* name;
  std::function<VerifyReport()> run;
  Cause cause = Cause::kNone;
  const char* tensor = "";              // the first that differs
  int step = 0;                         // of the first difference
  int rank = -1;                        // the rank that differs; -1: none named
  std::vector<std::string> parts = {};  // substrings of the text
};

// verify() of a model M with the given options and loss.
template <class M> auto on(int world, VerifyOptions options = {}) {
  options.world = world;
  return [=] { return verify(make<M>, vectors(), options); };
}
template <class M> auto on_images(int world, VerifyOptions options = {}) {
  options.world = world;
  return [=] { return verify(make<M>, samples({1, 8, 8}), options); };
}
template <class M, class Loss> auto with_loss(int world, Loss loss, VerifyOptions options = {}) {
  options.world = world;
  return [=] { return verify(make<M>, vectors(), options, loss); };
}
template <class Loss> auto with_batch_norm(Loss loss, VerifyOptions options = {}) {
  return [=] { return verify(make<BatchNormNet>, samples({1, 8, 8}), options, loss); };
}

Tensor weighted_mean(nn::Layer& net, const data::Batch& b) {
  return mean_over_the_batch(net, b) * (double(b.size()) * get_world_size() / double(b.global_size));
}
Tensor sum_over_the_batch(nn::Layer& net, const data::Batch& b) {
  return mean_over_the_batch(net, b) * double(b.size());
}
void freeze_batch_norm(nn::Module& m) {
  m.find("bn1").eval();
  m.find("bn2").eval();
}
VerifyReport from_other_weights() {
  const auto differently = [] {
    manual_seed(get_rank() + 10 * get_world_size());
    return make<Net>();
  };
  return verify(differently, vectors(), {.world = 3});
}

TEST(Verify, FindsTheFirstDifferenceAndItsCause) {
  const Row rows[] = {
      {"one rank", on_images<ConvNet>(1, {.tolerance = 1e-12})},
      {"two ranks", on_images<ConvNet>(2, {.tolerance = 1e-12})},
      {"three ranks", on_images<ConvNet>(3, {.tolerance = 1e-12})},
      {"four ranks", on_images<ConvNet>(4, {.tolerance = 1e-12})},
      {"weights of other instances", from_other_weights},
      {"random samples, read once", [] { return verify(make<Net>, Augmented(), {.world = 4}); }},
      {"different parameters on each rank", on<Moe>(4, {.batch_size = 1})},
      // The bias before a batch norm has a gradient of rounding, measured by a thousandth of the largest
      // gradient.
      {"synchronized batch norm", on_images<BatchNormNet>(4, {.tolerance = 1e-11, .prepare = synchronize})},
      {"batch norm in evaluation mode", on_images<BatchNormNet>(2, {.prepare = freeze_batch_norm})},
      {"plain batch norm",
       on_images<BatchNormNet>(2),
       Cause::kBatchNormStatistics,
       "loss",
       0,
       -1,
       {"bn1, bn2", "convert_sync_batchnorm"}},
      {"a mean over unequal batches",
       with_loss<Net>(4, mean_over_the_batch),
       Cause::kUnequalBatches,
       "loss",
       2,
       -1,
       {"global_size"}},
      {"a mean over equal batches", with_loss<Net>(4, mean_over_the_batch, {.unequal = false})},
      {"the weight that the report advises", with_loss<Net>(4, weighted_mean)},
      {"a sum over the batch", with_loss<Net>(4, sum_over_the_batch), Cause::kSumOverBatch, "loss"},
      {"the first of two faults", with_batch_norm(mean_over_the_batch), Cause::kBatchNormStatistics, "loss"},
      {"the other one", with_batch_norm(mean_over_the_batch, {.prepare = synchronize}),
       Cause::kUnequalBatches, "loss", 2},
      {"a buffer of local data", on<Centered>(3), Cause::kBuffer, "buffer center", 0, 1},
      {"a buffer that depends on the number of ranks", on<SamplesSeen>(2), Cause::kBuffer, "buffer seen"},
      {"a buffer that changes the loss",
       on<CenteredAtOnce>(2),
       Cause::kBuffer,
       "loss",
       0,
       -1,
       {"updates center"}},
      {"the reduction that the report advises", on<CenteredTogether>(2, {.unequal = false})},
      {"dropout", on<DropoutNet>(4), Cause::kRandomness, "loss", 0, -1, {"drop draws"}},
      {"the same noise on all ranks", on<NoiseNet>(2), Cause::kRandomness, "loss"},
      {"different noise", on<NoiseNet>(2, {.prepare = [](nn::Module&) { manual_seed(get_rank()); }}),
       Cause::kRandomness, "loss"},
      {"noise that the rank seeds", on<RankSeededNet>(2), Cause::kRandomness, "loss"},
      {"random numbers of the model's own", on<OwnNumbersNet>(2), Cause::kDependsOnRank, "loss"},
      {"a parameter that one rank changes",
       on<UnequalUpdate>(4),
       Cause::kDependsOnRank,
       "parameter last.bias",
       0,
       2,
       {"rank 2"}},
      {"a wrong gradient rule",
       on<WrongRule>(2),
       Cause::kUnknown,
       "gradient of first.weight",
       0,
       -1,
       {"look at the backward", "relative 0.5"}},
      {"a loss of pairs",
       with_loss<Net>(2, of_pairs),
       Cause::kUnknown,
       "loss",
       0,
       -1,
       {"compares samples with each other"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const VerifyReport report = row.run();
    EXPECT_EQ(report.cause, row.cause) << report;
    EXPECT_EQ(bool(report), row.cause == Cause::kNone);
    EXPECT_EQ(report.tensor, row.tensor);
    EXPECT_EQ(report.step, row.step);
    EXPECT_EQ(report.rank, row.rank);
    for (const std::string& part : row.parts) EXPECT_THAT(report.text, HasSubstr(part));
  }
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
