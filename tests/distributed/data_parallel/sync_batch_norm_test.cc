// Synchronized batch norm on several ranks against batch norm of the joined batch on one: outputs,
// statistics, first and second derivatives in f64 to about 1e-12, and in 16 bits with errors about as large
// as on one rank.
#include "gradus/distributed/data_parallel/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

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

// Gradients of L = sum(y^2 * factor), y = net(x). second, second_weight: gradients of sum(dL/dx * direction)
// by x and the weight.
struct Derivatives {
  Tensor y, dx, dweight, dbias, second, second_weight;
};
Derivatives derivatives(Net& net, const Tensor& x, const Tensor& factor, const Tensor& direction) {
  GradManager outer, inner;
  std::vector<Tensor> leaves = net.parameters();
  leaves.push_back(x);
  outer.attach(leaves), inner.attach(leaves);
  auto outer_recording = outer.record();
  auto recording = inner.record();
  const Tensor y = net(x), weight = net.bn->weight, bias = net.bn->bias;
  inner.backward(sum(y * y * factor));
  Derivatives d{.y = detach(y), .dx = detach(x.grad())};
  if (weight.defined())
    d.dweight = raw::clone(detach(weight.grad())), d.dbias = raw::clone(detach(bias.grad()));
  const Tensor product = sum(x.grad() * direction);
  for (const Tensor& leaf : leaves) leaf.set_grad({});
  outer_recording.backward(product);
  d.second = x.grad();
  if (weight.defined()) d.second_weight = raw::clone(weight.grad());
  for (const Tensor& leaf : leaves) leaf.set_grad({});
  return d;
}
Derivatives derivatives_on_all_ranks(Net& net, const Tensor& x, const Tensor& factor,
                                     const Tensor& direction) {
  const Derivatives d = derivatives(net, x, factor, direction);
  for (const Tensor& g : {d.dweight, d.dbias, d.second_weight})
    if (g.defined()) all_reduce(g);
  return d;
}

class SyncBatchNorm : public testing::TestWithParam<Case> {};

TEST_P(SyncBatchNorm, EqualsBatchNormOfTheJoinedBatchToSecondOrder) {
  const Case& c = GetParam();
  const int world = int(c.rows.size());
  Net joined_net(c.options, c.row.size() == 3);
  const nn::BatchNorm& joined = *joined_net.bn;
  Derivatives expected;
  for (uint64_t step = 0; step < 2; ++step)
    expected = derivatives(joined_net, values(c, step), values(c, 10 + step), values(c, 20 + step));

  for (const Device device : {kCPU, Device::parse("cpu:1")})
    run_ranks(world, [&] {
      const int rank = get_rank();
      Net net(c.options, c.row.size() == 3);
      net.to(device);
      EXPECT_EQ(convert_sync_batchnorm(net), 1);
      const nn::BatchNorm& bn = *net.bn;
      Derivatives d;
      for (uint64_t step = 0; step < 2; ++step) {
        const auto mine = [&](uint64_t seed) { return raw::to(part(c, values(c, seed), rank), device); };
        d = derivatives_on_all_ranks(net, mine(step), mine(10 + step), mine(20 + step));
      }
      EXPECT_LT(distance(d.y, part(c, expected.y, rank)), 1e-12);
      EXPECT_LT(distance(d.dx, part(c, expected.dx, rank)), 1e-12);
      EXPECT_LT(distance(d.second, part(c, expected.second, rank)), 1e-11);
      if (bn.weight.defined()) {
        EXPECT_LT(distance(d.dweight, expected.dweight), 1e-12);
        EXPECT_LT(distance(d.dbias, expected.dbias), 1e-12);
        EXPECT_LT(distance(d.second_weight, expected.second_weight), 1e-11);
      }
      if (bn.running_mean.defined()) {
        EXPECT_LT(distance(bn.running_mean, joined.running_mean), 1e-12);
        EXPECT_LT(distance(bn.running_var, joined.running_var), 1e-12);
        EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), joined.num_batches_tracked.item<int64_t>());
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

double squared_error(const Tensor& y, const Tensor& exact) {
  const auto a = y.to_vector<double>(), b = exact.to_vector<double>();
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return a.empty() ? 0 : sum / double(a.size());
}
double largest(const Tensor& x) {
  double most = 0;
  for (const double v : x.to_vector<double>()) most = std::max(most, std::abs(v));
  return most;
}

// Parameters of f32 under autocast, or all in 16 bits.
struct Mode {
  const char* name;
  DType dtype;
  bool autocast;
};
const Mode kModes[] = {{"autocast to bf16", DType::kBF16, true},
                       {"autocast to f16", DType::kF16, true},
                       {"all bf16", DType::kBF16, false},
                       {"all f16", DType::kF16, false}};
// Largest relative error of rounding.
double unit(DType t) { return t == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

template <class F> auto in_mode(const Mode& m, Net& net, F f) {
  net.to(m.autocast ? DType::kF32 : m.dtype);
  std::optional<Autocast> amp;
  if (m.autocast) amp.emplace(m.dtype);
  return f();
}

class SyncBatchNormIn16Bits : public testing::TestWithParam<Case> {};

TEST_P(SyncBatchNormIn16Bits, IsAsCloseToF64AsBatchNormOfTheJoinedBatch) {
  const Case& c = GetParam();
  const bool images = c.row.size() == 3;
  for (const Mode& m : kModes) {
    SCOPED_TRACE(m.name);
    const auto rounded = [&](uint64_t seed) { return to(values(c, seed) + 3.0, m.dtype); };
    const Tensor x = rounded(0), factor = rounded(10), direction = rounded(20);
    const auto exactly = [](const Tensor& t) { return to(t, DType::kF64); };
    Net exact_net(c.options, images), plain_net(c.options, images);
    exact_net.to(m.autocast ? DType::kF32 : m.dtype)
        .to(DType::kF64);  // with the weights that the others have
    const Derivatives exact = derivatives(exact_net, exactly(x), exactly(factor), exactly(direction));
    const Derivatives plain =
        in_mode(m, plain_net, [&] { return derivatives(plain_net, x, factor, direction); });
    EXPECT_LT(std::sqrt(squared_error(plain.y, exact.y)), unit(m.dtype) * largest(exact.y));
    EXPECT_LT(std::sqrt(squared_error(plain.dx, exact.dx)), unit(m.dtype) * largest(exact.dx));
    // The second gradient of x has two terms, one through y and one through the first gradient.
    EXPECT_LT(std::sqrt(squared_error(plain.second, exact.second)),
              2 * unit(m.dtype) * largest(exact.second));

    run_ranks(int(c.rows.size()), [&] {
      SCOPED_TRACE(m.name);
      const auto mine = [&](const Tensor& t) { return part(c, t, get_rank()); };
      Net net(c.options, images);
      convert_sync_batchnorm(net);
      const Derivatives d = in_mode(
          m, net, [&] { return derivatives_on_all_ranks(net, mine(x), mine(factor), mine(direction)); });
      // Both round to 16 bits at the same places, so errors are nearly equal. In second order the places
      // differ: errors have the same size but other values.
      const auto expect_as_close = [&](const char* what, const Tensor& here, const Tensor& there,
                                       const Tensor& want, double more = 0) {
        const double factor = std::string_view(what).starts_with("second") ? 1.5 : 1.1;
        EXPECT_LT(std::sqrt(squared_error(here, want)),
                  factor * std::sqrt(squared_error(there, want)) + (more + 1e-6) * largest(want) + 1e-300)
            << what;
      };
      expect_as_close("y", d.y, mine(plain.y), mine(exact.y));
      expect_as_close("dx", d.dx, mine(plain.dx), mine(exact.dx));
      expect_as_close("second dx", d.second, mine(plain.second), mine(exact.second));
      // Sums over ranks of gradients that have 16 bits are rounded on each rank and once more for each.
      const double more = m.autocast ? 0 : 2 * double(c.rows.size()) * unit(m.dtype);
      if (net.bn->weight.defined()) {
        expect_as_close("dweight", d.dweight, plain.dweight, exact.dweight, more);
        expect_as_close("dbias", d.dbias, plain.dbias, exact.dbias, more);
        expect_as_close("second dweight", d.second_weight, plain.second_weight, exact.second_weight, more);
      }
      if (net.bn->running_mean.defined()) {
        const double digits = m.autocast ? 1e-6 : unit(m.dtype);
        EXPECT_LT(distance(net.bn->running_mean, exact_net.bn->running_mean), digits);
        EXPECT_LT(distance(net.bn->running_var, exact_net.bn->running_var), digits);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, SyncBatchNormIn16Bits,
                         testing::Values(Case{"two_ranks", {8, 8}, {kChannels, 4, 5}},
                                         Case{"one_empty", {0, 9, 4}, {kChannels, 3, 5}},
                                         Case{"vectors", {17, 12}, {kChannels}},
                                         Case{"without_statistics",
                                              {8, 7},
                                              {kChannels, 4, 5},
                                              {.features = kChannels, .track_running_stats = false}},
                                         Case{"without_weights",
                                              {8, 7},
                                              {kChannels, 4, 5},
                                              {.features = kChannels, .affine = false}}),
                         [](const auto& info) { return info.param.name; });

TEST(SyncBatchNormTraining, TakesBatchesThatAreEmptyOnAllRanks) {
  run_ranks(2, [] {
    nn::BatchNorm2d bn({.features = 2});
    convert_sync_batchnorm(bn);
    GradManager gm;
    gm.attach(bn.parameters());
    auto recording = gm.record();
    gm.backward(sum(bn(empty({0, 2, 3, 3}))));
    EXPECT_THAT(bn.weight.grad().to_vector<double>(), Each(0));
    EXPECT_THAT(bn.running_mean.to_vector<double>(), Each(0));
    EXPECT_THAT(bn.running_var.to_vector<double>(), Each(1));
  });
}

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

TEST(ConvertSyncBatchNorm, FindsEveryLayerAndGoesBack) {
  run_ranks(2, [] {
    Deep net;
    Tensor x = ones({2, 2});
    x.mutable_data<float>()[0] = float(1 + 4 * get_rank());
    EXPECT_EQ(convert_sync_batchnorm(net), 3);
    net(x);
    EXPECT_FLOAT_EQ(net.mean_of("blocks.0.bn"), 0.1f * 2);  // of 1, 1, 5, 1
    EXPECT_NEAR(net.mean_of("blocks.1.bn"), 0, 1e-6);       // its input is normalized
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

TEST(ConvertSyncBatchNorm, FindsTheNormOfAConditionalBatchNorm) {
  run_ranks(2, [] {
    nn::ConditionalBatchNorm2d net({.features = 1, .classes = 2});
    EXPECT_EQ(convert_sync_batchnorm(net), 1);
    net(full({1, 1, 2, 2}, get_rank() == 0 ? 1 : 3), tensor({get_rank()}));
    EXPECT_FLOAT_EQ(net.norm.running_mean.data<float>()[0], 0.1f * 2);
  });
}

TEST(ConvertSyncBatchNorm, FrozenLayersStayFrozen) {
  run_ranks(2, [] {
    nn::BatchNorm1d bn({.features = 1, .eps = 0, .freeze = true});
    convert_sync_batchnorm(bn);
    if (get_rank() == 1) return;  // a frozen layer exchanges nothing
    EXPECT_THAT(bn(tensor<float>({1, 3}, {2, 1})).to_vector<float>(), testing::ElementsAre(1, 3));
    EXPECT_EQ(bn.running_mean.item<float>(), 0);
  });
}

TEST(ConvertSyncBatchNorm, AGroupOfItsOwnCounts) {
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

TEST(ConvertSyncBatchNorm, EvaluationNeedsNobody) {
  run_ranks(2, [] {
    nn::BatchNorm1d bn({.features = 2});
    convert_sync_batchnorm(bn);
    bn.eval();
    if (get_rank() > 0) return;
    EXPECT_EQ(bn(ones({1, 2})).size(0), 1);
  });
}

TEST(ConvertSyncBatchNorm, OneElementOnAllRanksTogetherIsAnErrorOnAll) {
  const auto errors = errors_of(2, [] {
    nn::BatchNorm1d bn({.features = 2});
    convert_sync_batchnorm(bn);
    bn(ones({get_rank(), 2}));
  });
  EXPECT_THAT(errors, Each(HasSubstr("more than one element")));
}

TEST(SyncBatchNormTraining, ARankThatDoesNotUseTheResultTakesPart) {
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

// The only error allowed is that of rounding a mean of 10,000 to f32: at most 2^-11.
TEST(SyncBatchNormTraining, ALargeMeanCostsNoMoreAccuracyThanOnOneRank) {
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

}  // namespace
}  // namespace gradus::dist
