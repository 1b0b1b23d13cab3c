// MinibatchStdDev (a layer of GAN discriminators) over several ranks against one layer on the joined batch,
// in f64: outputs, first and second derivatives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/nn/nn.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

constexpr int64_t kPerRank = 4;

Tensor values(uint64_t seed, int64_t n) {
  Context context;
  const ContextScope scope(context);
  manual_seed(seed);
  return randn({n, 4, 2, 3}, {.dtype = DType::kF64});
}

// The samples of one rank: rank, rank + world, ..., as a loader shares a global batch.
Tensor part(const Tensor& all, int rank, int world) {
  return select(reshape(all, {all.size(0) / world, world, all.size(1), all.size(2), all.size(3)}), 1, rank);
}

double distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  EXPECT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

// For L = sum(factor y^2), y = layer(x): y, dx = dL/dx, and second = d sum(dx * direction) / dx.
struct Derivatives {
  Tensor y, dx, second;
};
Derivatives derivatives(nn::MinibatchStdDev& layer, const Tensor& x, const Tensor& factor,
                        const Tensor& direction) {
  Derivatives d;
  const auto weighted = [&](const Tensor& at) {
    const Tensor y = layer(at);
    d.y = detach(y);
    return sum(square(y) * factor);
  };
  const auto slope = [&](const Tensor& at) {
    const Tensor dx = autograd::grad(weighted, at);
    d.dx = detach(dx);
    return sum(dx * direction);
  };
  d.second = autograd::grad(slope, x);
  return d;
}

class SyncMinibatchStdDev : public testing::TestWithParam<int> {};

TEST_P(SyncMinibatchStdDev, EqualsTheJoinedBatchToSecondOrder) {
  const int world = GetParam();
  const int64_t total = kPerRank * world;
  for (const nn::MinibatchStdDevOptions& o :
       {nn::MinibatchStdDevOptions{}, {.group_size = 2, .channel_groups = 2}, {.group_size = 1000}}) {
    const Tensor x = values(1, total), direction = values(2, total);
    const Tensor factor = cat({values(3, total), values(4, total)}, 1);
    const Tensor weights = narrow(factor, 1, 0, 4 + o.channel_groups);
    nn::MinibatchStdDev joined(o);
    const Derivatives expected = derivatives(joined, x, weights, direction);
    run_ranks(world, [&] {
      const int rank = get_rank();
      nn::Sequential net;
      auto& layer = net.add<nn::MinibatchStdDev>(o);
      EXPECT_EQ(convert_sync_minibatch_stddev(net), 1);
      const Derivatives d =
          derivatives(layer, part(x, rank, world), part(weights, rank, world), part(direction, rank, world));
      EXPECT_LT(distance(d.y, part(expected.y, rank, world)), 1e-13);
      EXPECT_LT(distance(d.dx, part(expected.dx, rank, world)), 1e-12);
      EXPECT_LT(distance(d.second, part(expected.second, rank, world)), 1e-11);

      // In evaluation, and after revert_sync_minibatch_stddev, a rank uses its own batch.
      nn::MinibatchStdDev plain(o);
      const Tensor mine = part(x, rank, world);
      layer.eval();
      EXPECT_EQ(distance(layer(mine), plain(mine)), 0);
      layer.train();
      EXPECT_EQ(revert_sync_minibatch_stddev(net), 1);
      EXPECT_EQ(distance(layer(mine), plain(mine)), 0);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SyncMinibatchStdDev, testing::Values(1, 2, 3));

TEST(SyncMinibatchStdDevErrors, BatchesOfUnequalSizeAreAnErrorOnAllRanks) {
  const auto errors = errors_of(2, [] {
    nn::MinibatchStdDev layer;
    convert_sync_minibatch_stddev(layer);
    layer(zeros({get_rank() == 0 ? 2 : 4, 4, 2, 3}));
  });
  for (const std::string& e : errors) EXPECT_NE(e, "");
}

TEST(SyncMinibatchStdDevErrors, TheJoinedBatchMustMakeGroups) {
  const auto errors = errors_of(3, [] {
    nn::MinibatchStdDev layer;
    convert_sync_minibatch_stddev(layer);
    layer(zeros({2, 4, 2, 3}));  // 6 in all, in groups of 4
  });
  for (const std::string& e : errors) EXPECT_THAT(e, HasSubstr("a multiple of 4"));
}

}  // namespace
}  // namespace gradus::dist
