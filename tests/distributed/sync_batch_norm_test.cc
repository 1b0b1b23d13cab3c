// Batch norm over several ranks against batch norm of the joined batch, in f64.
#include "gradus/distributed/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops.h"
#include "gradus/distributed/collectives.h"
#include "gradus/distributed/functional.h"
#include "gradus/distributed/process_group.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/distributed/rank_processes.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int kChannels = 3;

// Largest difference, relative to the largest element of `b`.
double distance(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double difference = 0, scale = 1e-300;
  for (size_t i = 0; i < x.size(); ++i) {
    difference = std::max(difference, std::abs(x[i] - y[i]));
    scale = std::max(scale, std::abs(y[i]));
  }
  return x.empty() ? 0 : difference / scale;
}

// Rank r has rows [begin(r), begin(r + 1)) of the joined batch.
struct Case {
  std::string name;
  std::vector<int64_t> rows;  // per rank
  Shape row;                  // [C,...]
  nn::BatchNormOptions options = {.features = kChannels};
  bool channels_last = false;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

Tensor values(const Case& c, uint64_t seed) {
  int64_t total = 0;
  for (int64_t n : c.rows) total += n;
  Shape shape = c.row;
  shape.insert(0, total);
  Context context;
  ContextScope scope(context);
  manual_seed(seed);
  return randn(shape, {DType::kF64});
}

Tensor part(const Case& c, const Tensor& all, int rank) {
  int64_t begin = 0;
  for (int r = 0; r < rank; ++r) begin += c.rows[r];
  Tensor x = raw::clone(raw::contiguous(narrow(all, 0, begin, c.rows[rank])));
  return c.channels_last && x.numel() > 0 ? raw::channels_last(x) : x;
}

struct Net : nn::Layer {
  explicit Net(const nn::BatchNormOptions& o, bool images) {
    if (images)
      bn = std::make_unique<nn::BatchNorm2d>(this, "bn", o);
    else
      bn = std::make_unique<nn::BatchNorm1d>(this, "bn", o);
    to(DType::kF64);
    Context context;
    ContextScope scope(context);
    manual_seed(7);
    for (Tensor p : parameters()) raw::normal_(p, 1, 0.3);
  }
  Tensor forward(const Tensor& x) override { return (*bn)(x); }
  std::unique_ptr<nn::BatchNorm> bn;
};

struct Result {
  Tensor y, dx, dweight, dbias, mean, var, second, second_weight;
  int64_t batches = 0;
};

class SyncBatchNorm : public testing::TestWithParam<Case> {};

TEST_P(SyncBatchNorm, equals_batch_norm_of_the_joined_batch_to_second_order) {
  const Case& c = GetParam();
  const int world = int(c.rows.size());
  Net joined_net(c.options, c.row.size() == 3);
  const auto joined_input = [&](int seed) { return values(c, uint64_t(seed)); };

  Result expected;
  {
    nn::BatchNorm& bn = *joined_net.bn;
    for (int step = 0; step < 2; ++step) {
      const Tensor x = joined_input(step), factor = joined_input(10 + step),
                   direction = joined_input(20 + step);
      GradManager outer, inner;
      std::vector<Tensor> leaves = joined_net.parameters();
      leaves.push_back(x);
      outer.attach(leaves), inner.attach(leaves);
      auto outer_recording = outer.record();
      auto recording = inner.record();
      const Tensor y = joined_net(x);
      expected.y = detach(y);
      inner.backward(sum(y * y * factor));
      expected.dx = detach(x.grad());
      if (bn.weight.defined())
        expected.dweight = detach(bn.weight.grad()), expected.dbias = detach(bn.bias.grad());
      const Tensor product = sum(x.grad() * direction);
      for (const Tensor& leaf : leaves) leaf.set_grad({});
      outer_recording.backward(product);
      expected.second = x.grad();
      if (bn.weight.defined()) expected.second_weight = bn.weight.grad();
      for (const Tensor& leaf : leaves) leaf.set_grad({});
    }
    if (bn.running_mean.defined()) {
      expected.mean = bn.running_mean, expected.var = bn.running_var;
      expected.batches = bn.num_batches_tracked.item<int64_t>();
    }
  }

  run_ranks(world, [&] {
    const int rank = get_rank();
    Net net(c.options, c.row.size() == 3);
    EXPECT_EQ(convert_sync_batchnorm(net), 1);
    nn::BatchNorm& bn = *net.bn;
    for (int step = 0; step < 2; ++step) {
      const auto input = [&](int seed) { return part(c, values(c, uint64_t(seed)), rank); };
      const Tensor x = input(step), factor = input(10 + step), direction = input(20 + step);
      GradManager outer, inner;
      std::vector<Tensor> leaves = net.parameters();
      leaves.push_back(x);
      outer.attach(leaves), inner.attach(leaves);
      auto outer_recording = outer.record();
      auto recording = inner.record();
      const Tensor y = net(x);
      inner.backward(sum(y * y * factor));
      const Tensor dx = detach(x.grad());
      Tensor dweight, dbias;
      if (bn.weight.defined())
        dweight = raw::clone(detach(bn.weight.grad())), dbias = raw::clone(detach(bn.bias.grad()));
      const Tensor product = sum(x.grad() * direction);
      for (const Tensor& leaf : leaves) leaf.set_grad({});
      outer_recording.backward(product);
      if (step == 1) {
        EXPECT_LT(distance(y, part(c, expected.y, rank)), 1e-12);
        EXPECT_LT(distance(dx, part(c, expected.dx, rank)), 1e-12);
        EXPECT_LT(distance(x.grad(), part(c, expected.second, rank)), 1e-11);
        if (bn.weight.defined()) {
          all_reduce(dweight), all_reduce(dbias);
          EXPECT_LT(distance(dweight, expected.dweight), 1e-12);
          EXPECT_LT(distance(dbias, expected.dbias), 1e-12);
          Tensor second = raw::clone(bn.weight.grad());
          all_reduce(second);
          EXPECT_LT(distance(second, expected.second_weight), 1e-11);
        }
      }
      for (const Tensor& leaf : leaves) leaf.set_grad({});
    }
    if (bn.running_mean.defined()) {
      EXPECT_LT(distance(bn.running_mean, expected.mean), 1e-12);
      EXPECT_LT(distance(bn.running_var, expected.var), 1e-12);
      EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), expected.batches);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Batches, SyncBatchNorm,
    testing::Values(
        Case{"two_ranks", {4, 4}, {kChannels, 2, 3}}, Case{"four_ranks", {2, 2, 2, 2}, {kChannels, 2, 2}},
        Case{"unequal", {5, 1, 2}, {kChannels, 3, 2}}, Case{"one_empty", {0, 3, 2}, {kChannels, 2, 2}},
        Case{"all_on_one", {0, 6}, {kChannels}}, Case{"vectors", {3, 2}, {kChannels}},
        Case{"lines", {2, 3}, {kChannels, 5}}, Case{"one_row_each", {1, 1, 1}, {kChannels}},
        Case{"channels_last", {2, 3}, {kChannels, 4, 4}, {.features = kChannels}, true},
        Case{"without_weights", {2, 3}, {kChannels, 2, 2}, {.features = kChannels, .affine = false}},
        Case{"without_statistics",
             {2, 3},
             {kChannels, 2, 2},
             {.features = kChannels, .track_running_stats = false}},
        Case{"cumulative", {2, 3}, {kChannels, 2, 2}, {.features = kChannels, .momentum = std::nullopt}}),
    [](const auto& info) { return info.param.name; });

struct Block : nn::Layer {
  using nn::Layer::Layer;
  nn::BatchNorm1d bn{this, "bn", {.features = 2}};
  Tensor forward(const Tensor& x) override { return bn(x); }
};
struct Deep : nn::Layer {
  nn::Sequential blocks{this, "blocks"};
  nn::BatchNorm1d head{this, "head", {.features = 2}};
  Deep() { blocks.add<Block>(), blocks.add<Block>(); }
  Tensor forward(const Tensor& x) override { return head(blocks(x)); }
  float mean_of(const std::string& path) {
    return dynamic_cast<nn::BatchNorm&>(find(path)).running_mean.data<float>()[0];
  }
};

TEST(ConvertSyncBatchNorm, finds_every_layer_and_goes_back) {
  run_ranks(2, [] {
    Deep net;
    Tensor x = ones({2, 2});
    x.mutable_data<float>()[0] = float(1 + 4 * get_rank());
    EXPECT_EQ(convert_sync_batchnorm(net), 3);
    net(x);
    EXPECT_FLOAT_EQ(net.mean_of("blocks.0.bn"), 0.1f * 2);  // of 1, 1, 5, 1
    EXPECT_NEAR(net.mean_of("blocks.1.bn"), 0, 1e-6);       // of what is normal already
    EXPECT_NEAR(net.mean_of("head"), 0, 1e-6);
    net.eval();
    EXPECT_EQ(revert_sync_batchnorm(net), 3);
    net.train();
    net.apply([](nn::Module& m) {
      if (auto* bn = dynamic_cast<nn::BatchNorm*>(&m)) bn->reset_running_stats();
    });
    net(x);
    EXPECT_FLOAT_EQ(net.mean_of("blocks.0.bn"), get_rank() == 0 ? 0.1f * 1 : 0.1f * 3);
  });
}

TEST(ConvertSyncBatchNorm, a_group_of_its_own_counts) {
  run_ranks(4, [] {
    const Group pair = world().split(get_rank() / 2);
    nn::BatchNorm1d bn({.features = 1});
    convert_sync_batchnorm(bn, pair);
    Tensor x = empty({1, 1});
    raw::fill_(x, get_rank());
    bn(x);
    EXPECT_FLOAT_EQ(bn.running_mean.data<float>()[0], get_rank() < 2 ? 0.05f : 0.25f);
  });
}

TEST(ConvertSyncBatchNorm, evaluation_needs_nobody) {
  run_ranks(2, [] {
    nn::BatchNorm1d bn({.features = 2});
    convert_sync_batchnorm(bn);
    bn.eval();
    if (get_rank() > 0) return;
    EXPECT_EQ(bn(ones({1, 2})).size(0), 1);
  });
}

TEST(ConvertSyncBatchNorm, one_element_on_all_ranks_together_is_an_error_on_all) {
  const auto errors = errors_of(2, [] {
    nn::BatchNorm1d bn({.features = 2});
    convert_sync_batchnorm(bn);
    bn(ones({get_rank(), 2}));
  });
  EXPECT_THAT(errors, Each(HasSubstr("more than one element")));
}

TEST(SyncBatchNormTraining, a_rank_that_does_not_use_the_result_takes_part) {
  run_ranks(2, [] {
    nn::BatchNorm1d bn({.features = 1});
    convert_sync_batchnorm(bn);
    Tensor x = tensor(std::vector<float>{1, 2, float(4 + get_rank())}, {3, 1});
    GradManager gm;
    gm.attach(x);
    auto recording = gm.record();
    const Tensor y = bn(x);
    if (get_rank() == 0)
      gm.backward(sum(y * y * y));
    else
      gm.backward();
    ASSERT_TRUE(x.grad().defined());
    EXPECT_GT(std::abs(x.grad().data<float>()[0]), 1e-4);
  });
}

double squared_error(const Tensor& y, const Tensor& exact) {
  const auto a = y.to_vector<double>(), b = exact.to_vector<double>();
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum / double(a.size());
}

// The rounding of a mean of 10,000 to f32 is all that either has to show: half a unit of 2^-10 at most.
TEST(SyncBatchNormTraining, a_large_mean_costs_no_more_accuracy_than_on_one_rank) {
  constexpr int64_t kMany = 64, kRows = 3 * 41;
  manual_seed(4);
  const Tensor x = randn({kRows, kMany}) + 10'000.0;
  nn::BatchNorm1d exact({.features = kMany}), plain({.features = kMany});
  exact.to(DType::kF64);
  const Tensor want = exact(to(x, DType::kF64));
  const double error = squared_error(plain(x), want);
  run_ranks(3, [&] {
    nn::BatchNorm1d bn({.features = kMany});
    convert_sync_batchnorm(bn);
    const auto mine = [](const Tensor& t) { return raw::clone(narrow(t, 0, 41 * get_rank(), 41)); };
    const double here = squared_error(bn(mine(x)), mine(want));
    EXPECT_LT(here, 1.2 * error);
    EXPECT_LT(here, std::pow(0x1p-11, 2));
    EXPECT_LT(distance(bn.running_var, exact.running_var), 1e-5);
  });
}

const RankFunction trains{"trains", [] {
                            init_process_group({.timeout = Milliseconds(20'000)});
                            nn::BatchNorm2d bn({.features = 2});
                            convert_sync_batchnorm(bn);
                            GradManager gm;
                            gm.attach(bn.parameters());
                            for (int i = 0; i < 20; ++i) {
                              auto recording = gm.record();
                              manual_seed(uint64_t(i * 2 + get_rank()));
                              const Tensor y = bn(randn({3 + get_rank(), 2, 4, 4}));
                              gm.backward(sum(y * y * y));
                            }
                            Tensor least = raw::clone(bn.running_var), most = raw::clone(bn.running_var);
                            all_reduce(least, {.op = ReduceOp::kMin}),
                                all_reduce(most, {.op = ReduceOp::kMax});
                            const bool same = least.to_vector<float>() == most.to_vector<float>();
                            destroy_process_group();
                            return same ? 0 : 1;
                          }};

TEST(SyncBatchNormTraining, runs_between_processes) {
  const int port = free_port();
  const auto ends = run_processes("trains", 3, {.variables = [&](int rank) -> Variables {
                                    return {{"RANK", std::to_string(rank)},
                                            {"WORLD_SIZE", "3"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", std::to_string(port)}};
                                  }});
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.output;
}

}  // namespace
}  // namespace gradus::dist
