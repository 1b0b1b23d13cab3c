// Pipelines with data-parallel replicas, synchronized batch norm, gradient accumulation, clipping and a
// GradScaler: losses, gradient norms and final state are, within 1e-12, those of one f64 process on the
// joined batch.
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/helpers.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 6, .out = 8}};
  nn::BatchNorm1d norm1{this, "norm1", {.features = 8}};
  nn::Linear fc2{this, "fc2", {.in = 8, .out = 8}};
  nn::BatchNorm1d norm2{this, "norm2", {.features = 8}};
  nn::Linear fc3{this, "fc3", {.in = 8, .out = 3}};
  Tensor forward(const Tensor& x) override { return fc3(relu(norm2(fc2(relu(norm1(fc1(x))))))); }
};

constexpr int kSteps = 5, kParts = 2, kReplicas = 2;
constexpr int64_t kRows = 16;  // of both replicas
constexpr double kClip = 0.3;

// The gradients of the kParts batches of a step are accumulated.
Tensor input(int step, int part) { return random_tensor({kRows, 6}, DType::kF64, 10 + 2 * step + part); }
Tensor target(int step, int part) { return random_tensor({kRows, 3}, DType::kF64, 90 + 2 * step + part); }

// Returns the rows of both replicas' k-th of `count` micro-batches.
Tensor joined(const Tensor& x, int k, int count) {
  const int64_t share = kRows / kReplicas, rows = share / count;
  return cat({narrow(x, 0, k * rows, rows), narrow(x, 0, share + k * rows, rows)}, 0);
}

struct Trained {
  std::vector<double> losses, norms;
  nn::StateDict state;
};

Trained one_process(int micro_batches) {
  manual_seed(5);
  const auto model = make_f64<Net>();
  GradManager gm;
  gm.attach(model->parameters());
  optim::SGD opt(model->parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::GradScaler scaler;
  Trained trained;
  for (int i = 0; i < kSteps; ++i) {
    for (int part = 0; part < kParts; ++part) {
      double sum = 0;
      for (int k = 0; k < micro_batches; ++k) {
        const auto recording = gm.record();
        const Tensor loss = nn::mse_loss((*model)(joined(input(i, part), k, micro_batches)),
                                         joined(target(i, part), k, micro_batches)) /
                            double(micro_batches);
        scaler.backward(gm, loss);
        sum += loss.item<double>();
      }
      trained.losses.push_back(sum);
    }
    scaler.step(opt, {.clip_norm = kClip});
    trained.norms.push_back(scaler.grad_norm().item<double>());
    opt.clear_grad();
  }
  for (const auto& [name, x] : model->state_dict()) trained.state.emplace_back(name, clone(x));
  return trained;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12 * want[i]) << i;
}

// Synchronized batch norms, two parts per step, clipping, scaled gradients.
TEST(PipelineGrid, TrainsAsOneProcessOnTheJoinedBatch) {
  for (const int micro_batches : {1, 2}) {
    const Trained want = one_process(micro_batches);
    EXPECT_GT(want.norms.front(), kClip);
    for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1})
      for (const auto& [recompute, every] :
           {std::pair(Recompute::kNever, 0), {Recompute::kAlways, 0}, {Recompute::kAlways, 1}})
        run_ranks(2 * kReplicas, [&, recompute = recompute, every = every] {
          manual_seed(5);
          Pipeline<Net> pipe(make_f64<Net>, zeros({2, 6}, {DType::kF64}),
                             {.stages = 2,
                              .schedule = schedule,
                              .micro_batches = micro_batches,
                              .cut_after = {"norm1"},
                              .recompute = recompute,
                              .recompute_every = every});
          convert_sync_batchnorm(pipe.module(), pipe.grid().group("replica"));
          GradManager gm;
          pipe.attach(gm);
          optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
          optim::GradScaler scaler({.agree = [](bool found) { return any_rank(found); }});
          const int64_t share = kRows / kReplicas, begin = pipe.grid().index("replica") * share;
          Trained mine;
          for (int i = 0; i < kSteps; ++i) {
            for (int part = 0; part < kParts; ++part)
              mine.losses.push_back(pipe.step(gm, narrow(input(i, part), 0, begin, share),
                                              narrow(target(i, part), 0, begin, share), nn::mse_loss,
                                              {.scaler = &scaler}));
            scaler.unscale_(opt);
            mine.norms.push_back(pipe.clip_grad_norm_(kClip));
            EXPECT_TRUE(scaler.step(opt));
            opt.clear_grad();
          }
          expect_close(mine.losses, want.losses);
          expect_close(mine.norms, want.norms);
          for (const auto& [name, x] : pipe.module().state_dict())
            if (x.device() == kCPU) expect_near(x, want.state.at(name), 1e-12);
        });
  }
}

}  // namespace
}  // namespace gradus::dist
