// Path lengths of a linear generator, whose derivative is its weight, against their formula: values, gradients,
// the running mean, and any number of ranks.
#include "gradus/train/gan/path_length.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"
#include "gradus/train/gan/lazy_regularization.h"

namespace gradus {
namespace {

constexpr TensorOptions kF64{.dtype = DType::kF64};

// image = sum over the layers l of ws[l] weight[l], with 2 layers of 3 numbers and images of 2x2x3.
struct Linear final : nn::Module {
  nn::Parameter weight{this, "weight", reshape(sin(to(arange(72), DType::kF64)), {2, 3, 12})};
  Tensor operator()(const Tensor& ws) const {
    return reshape(matmul(reshape(ws, {-1, 6}), reshape(weight, {6, 12})), {-1, 2, 2, 3});
  }
};

// Returns a batch's samples of this rank: those of index i with i mod the number of ranks = the rank.
Tensor share(const Tensor& batch) {
  std::vector<Tensor> own;
  for (int64_t i = dist::get_rank(); i < batch.size(0); i += dist::get_world_size())
    own.push_back(select(batch, 0, i));
  return stack(own, 0);
}

// The penalties and gradients of 3 steps, whose means differ.
struct Results {
  std::vector<double> penalties, gradients, mean;
};
using Penalty = std::function<Tensor(const Linear& net, const Tensor& ws, const Tensor& noise)>;

Results steps(const Penalty& penalty) {
  Linear net;
  GradManager gm;
  gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
  Results r;
  for (int step = 0; step < 3; ++step) {
    const auto numbers = [&](double phase, const Shape& shape) {
      return share(reshape(cos(to(arange(shape.product()), DType::kF64) * (step + 1.3) + phase), shape));
    };
    auto recording = gm.record();
    const Tensor loss = penalty(net, numbers(0, {4, 2, 3}), numbers(1, {4, 2, 2, 3}));
    gm.backward(loss);
    r.penalties.push_back(dist::functional::all_reduce(detach(loss), dist::ReduceOp::kMean).item<double>());
    for (const double g : net.weight.grad().to_vector<double>()) r.gradients.push_back(g);
    net.weight.set_grad({});
  }
  return r;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

Results of_the_class() {
  gan::PathLengthPenalty path_length({.decay = 0.25});
  Results r = steps([&](const Linear& net, const Tensor& ws, const Tensor& noise) {
    const Tensor w = ws + 0 * sum(net.weight);  // recorded, as a mapping's result
    return path_length(net(w), w, noise);
  });
  r.mean = path_length.running_mean().to_vector<double>();
  return r;
}

TEST(PathLengthPenalty, HasTheFormulasValuesAndGradients) {
  Tensor running = zeros({}, kF64);
  const Results want = steps([&](const Linear& net, const Tensor&, const Tensor& noise) {
    // [N,12] times [12,6]: J^T y of each layer, for y = noise / sqrt(2 * 3).
    const Tensor jy =
        matmul(reshape(noise, {-1, 12}), transpose(reshape(net.weight, {6, 12}), 0, 1)) / std::sqrt(6.0);
    const Tensor lengths = sqrt(sum(square(jy), {1}) / 2);
    const Tensor updated = 0.75 * running + 0.25 * mean(lengths);
    running = detach(updated);
    return mean(square(lengths - updated));
  });
  const Results got = of_the_class();
  expect_near(got.penalties, want.penalties, 1e-12);
  expect_near(got.gradients, want.gradients, 1e-12);
  expect_near(got.mean, running.to_vector<double>(), 1e-12);
}

TEST(PathLengthPenalty, IsThatOfTheJoinedBatchOnRanks) {
  const Results want = of_the_class();
  for (const int world : {2, 4})
    dist::run_ranks(world, [&] {
      const Results got = of_the_class();
      expect_near(got.penalties, want.penalties, 1e-12);
      expect_near(got.gradients, want.gradients, 1e-12);
      expect_near(got.mean, want.mean, 1e-12);
    });
}

TEST(PathLengthPenalty, HasNoNaNWhereALengthIsZero) {
  const Results r = steps([](const Linear& net, const Tensor& ws, const Tensor& noise) {
    gan::PathLengthPenalty path_length;
    const Tensor w = ws + 0 * sum(net.weight);
    return path_length(0 * net(w), w, noise);
  });
  for (const double g : r.gradients) EXPECT_EQ(g, 0);
}

TEST(PathLengthPenalty, KeepsItsMeanWhereLengthsAreNotFinite) {
  gan::PathLengthPenalty path_length;
  copy_(path_length.running_mean(), full({}, 3, kF64));
  steps([&](const Linear& net, const Tensor& ws, const Tensor& noise) {
    const Tensor w = ws + 0 * sum(net.weight);
    return path_length(net(w), w, noise * INFINITY);
  });
  EXPECT_EQ(path_length.running_mean().item<double>(), 3);
}

TEST(PathLengthPenalty, SavesItsMean) {
  gan::PathLengthPenalty a, b;
  copy_(a.running_mean(), full({}, 3, kF64));
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.running_mean().item<double>(), 3);
  EXPECT_ERROR(ValueError, b.load_state_dict({}), "PathLengthPenalty");
}

TEST(PathLengthPenalty, RefusesWrongShapes) {
  gan::PathLengthPenalty path_length;
  EXPECT_ERROR(ShapeError, path_length(zeros({2, 3, 4}), zeros({2, 1, 3}), zeros({2, 3, 4})),
               "[path_lengths]");
  EXPECT_ERROR(ShapeError, path_length(zeros({2, 3, 4, 4}), zeros({2, 3}), zeros({2, 3, 4, 4})),
               "expected ws [2,L,D]");
  EXPECT_ERROR(ValueError, gan::PathLengthPenalty({.decay = 2}), "expected a decay in [0,1]");
}

TEST(LazyRegularization, CorrectsRateAndBetas) {
  const optim::AdamOptions gen = gan::lazy_regularization({.lr = 2e-3, .betas = {0, 0.99}}, 4);
  const optim::AdamOptions disc = gan::lazy_regularization({.lr = 2e-3, .betas = {0, 0.99}}, 16);
  EXPECT_NEAR(gen.lr, 1.6e-3, 1e-15);
  EXPECT_EQ(gen.betas[0], 0);
  EXPECT_NEAR(gen.betas[1], 0.9919920, 5e-8);
  EXPECT_NEAR(disc.lr, 0.0018823529, 5e-11);
  EXPECT_NEAR(disc.betas[1], 0.9905855, 5e-8);
  EXPECT_ERROR(ValueError, gan::lazy_regularization({}, 0), "k >= 1");
}

}  // namespace
}  // namespace gradus
