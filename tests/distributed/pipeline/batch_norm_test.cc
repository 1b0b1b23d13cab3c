// Running statistics of batch norms in pipelines. With deferred_batch_norm a step updates them once, from all
// its rows, as the undivided f64 model does (1e-12); without, each micro-batch does.
#include <gtest/gtest.h>

#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"

namespace gradus::dist {
namespace {

// norm2's input depends on the batches that norm1 normalizes, so only norm1's statistics equal those of the
// undivided model. norm2 takes the mean over all batches (no momentum).
struct TwoNorms : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 6, .out = 8}};
  nn::BatchNorm1d norm1{this, "norm1", {.features = 8}};
  nn::Linear fc2{this, "fc2", {.in = 8, .out = 8}};
  nn::BatchNorm1d norm2{this, "norm2", {.features = 8, .momentum = {}}};
  nn::Linear fc3{this, "fc3", {.in = 8, .out = 3}};
  Tensor forward(const Tensor& x) override { return fc3(norm2.relu(fc2(relu(norm1(fc1(x)))))); }
};

Tensor batch(int64_t rows, int step) { return random_tensor({rows, 6}, DType::kF64, 10 + step); }

constexpr int kSteps = 3;

void expect_statistics(const nn::BatchNorm& got, const nn::BatchNorm& want) {
  expect_near(got.running_mean, want.running_mean, 1e-12);
  expect_near(got.running_var, want.running_var, 1e-12);
  EXPECT_EQ(got.num_batches_tracked.item<int64_t>(), want.num_batches_tracked.item<int64_t>());
}

// 26 rows in 4 micro-batches of different sizes. Four ranks are two replicas with 13 rows each.
TEST(PipelineBatchNorm, DeferredCountsAStepAsOneBatch) {
  manual_seed(5);
  const auto whole = make_f64<TwoNorms>();
  for (int i = 0; i < kSteps; ++i) (*whole)(batch(26, i));
  for (const int ranks : {1, 2, 4})
    for (const bool deferred : {true, false})
      run_ranks(ranks, [&] {
        manual_seed(5);
        PipelineOptions options{
            .stages = std::min(ranks, 2), .micro_batches = 4, .deferred_batch_norm = deferred};
        if (ranks > 1) options.cut_after = {"norm1"};
        Pipeline<TwoNorms> pipe(make_f64<TwoNorms>, batch(2, 0), options);
        const bool is_joined = ranks == 4;
        if (is_joined) convert_sync_batchnorm(pipe.module(), pipe.grid().group("replica"));
        GradManager gm;
        pipe.attach(gm);
        const int64_t rows = is_joined ? 13 : 26, begin = is_joined ? get_rank() / 2 * 13 : 0;
        for (int i = 0; i < kSteps; ++i)
          pipe.step(gm, narrow(batch(26, i), 0, begin, rows), zeros({rows, 3}, {DType::kF64}), nn::mse_loss);
        const TwoNorms& mine = pipe.module();
        for (const nn::BatchNorm* norm : {&mine.norm1, &mine.norm2})
          if (norm->running_mean.device() == kCPU) {
            EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), deferred ? kSteps : kSteps * 4);
            if (deferred && norm == &mine.norm1) expect_statistics(*norm, whole->norm1);
          }
      });
}

TEST(PipelineBatchNorm, DeferredGivesTheSameBitsForAllSchedules) {
  const auto want = train_unet(1, {.micro_batches = 4, .deferred_batch_norm = true});
  EXPECT_EQ(want.at("norm.num_batches_tracked"), std::vector<double>{kUNetSteps});
  EXPECT_NE(want.at("norm.running_var"), train_unet(1, {.micro_batches = 4}).at("norm.running_var"));
  for (const Recompute recompute : {Recompute::kNever, Recompute::kAlways})
    expect_unet(want, {.micro_batches = 4, .recompute = recompute, .deferred_batch_norm = true}, {2});
}

// Results of an evaluation then depend neither on the replica nor on a restart from a checkpoint.
TEST(PipelineBatchNorm, ReplicasTakeOverTheStatisticsOfTheFirst) {
  std::vector<std::vector<double>> means(4);
  run_ranks(4, [&] {
    manual_seed(5);
    Pipeline<TwoNorms> pipe(make_f64<TwoNorms>, batch(2, 0),
                            {.stages = 2, .micro_batches = 2, .cut_after = {"norm1"}});
    GradManager gm;
    pipe.attach(gm);
    for (int i = 0; i < kSteps; ++i)
      pipe.step(gm, batch(8, 10 * (get_rank() / 2) + i), zeros({8, 3}, {DType::kF64}), nn::mse_loss);
    const TwoNorms& mine = pipe.module();
    for (const nn::BatchNorm* norm : {&mine.norm1, &mine.norm2})
      if (norm->running_mean.device() == kCPU)
        means[size_t(get_rank())] = norm->running_mean.to_vector<double>();
  });
  for (const size_t stage : {0u, 1u}) {
    EXPECT_EQ(means[stage].size(), 8u);
    EXPECT_EQ(means[stage], means[stage + 2]);
  }
}

TEST(PipelineBatchNorm, AStepThatFailsLeavesTheStatistics) {
  Pipeline<TwoNorms> pipe(make_f64<TwoNorms>, batch(2, 0), {.micro_batches = 2, .deferred_batch_norm = true});
  GradManager gm;
  pipe.attach(gm);
  const auto fails = [](const Tensor&, const Tensor&) -> Tensor { throw ValueError("loss", "fails"); };
  EXPECT_THROW(pipe.step(gm, batch(4, 0), zeros({4, 3}), fails), ValueError);
  expect_statistics(pipe.module().norm1, make_f64<TwoNorms>()->norm1);
  pipe.step(gm, batch(4, 0), zeros({4, 3}, {DType::kF64}), nn::mse_loss);
  EXPECT_EQ(pipe.module().norm1.num_batches_tracked.item<int64_t>(), 1);
}

}  // namespace
}  // namespace gradus::dist
