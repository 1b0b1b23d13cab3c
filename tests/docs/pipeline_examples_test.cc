// The examples of docs/guide/pipeline.md: that they compile and do what the page says. Ranks are threads here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::HasSubstr;

struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 784, .out = 8}};
  nn::Linear fc2{this, "fc2", {.in = 8, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

TEST(PipelinePage, FromOneRankToSeveral) {
  const data::GeneratedDigits train({.size = 64});
  dist::run_ranks(2, [&] {
    const Tensor example = zeros({1, 784});
    dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, example,
                             {.schedule = dist::Schedule::k1F1B, .micro_batches = 4, .cut_after = {"fc1"}});
    GradManager gm;
    pipe.attach(gm);  // this rank's parameters
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    data::DataLoader loader(train, {.batch_size = 16, .shuffle = true});
    for (const data::Batch& b : loader) {  // every rank runs the same loop
      double loss =
          pipe.step(gm, flatten(b.input, 1), b.target, nn::cross_entropy);  // the same on every rank
      pipe.clip_grad_norm_(1.0);                                            // over all stages
      opt.step().clear_grad();
      std::cout << loss << '\n';
    }
    std::cout << pipe.describe();
    EXPECT_EQ(pipe.describe(),
              "stage 0 on rank 0, to fc1: 1 layer, 6280 parameters\n"
              "stage 1 on rank 1: 1 layer, 90 parameters; receives 32 bytes from fc1\n");
  });
}

TEST(PipelinePage, ChosenByMeasuring) {
  testing::internal::CaptureStdout();
  dist::run_ranks(2, [] {
    dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, zeros({8, 784}), {.stages = 2});
    GradManager gm;
    pipe.attach(gm);
    for (int i = 0; i < 10; ++i)
      pipe.step(gm, rand({32, 784}), zeros({32}, {DType::kI64}), nn::cross_entropy);
    if (dist::get_rank() == 0) std::cout << pipe.describe();
  });
  const std::string text = testing::internal::GetCapturedStdout();
  for (const char* part : {"stage 1 on rank 1", "ms forward", "times the mean", "chosen: ", "; ran in "})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(PipelinePage, SeveralDevicesOfOneProcess) {
  const Tensor example = zeros({1, 784});
  const Device one = Device::parse("cpu:1"), two = Device::parse("cpu:2");
  dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, example,
                           {.devices = {one, two}, .micro_batches = 4, .cut_after = {"fc1"}});
  GradManager gm;
  pipe.attach(gm);
  pipe.step(gm, ones({8, 784}), zeros({8}, {DType::kI64}), nn::cross_entropy);
  EXPECT_EQ(pipe.module().fc1.weight.grad().device(), one);
  EXPECT_EQ(pipe.module().fc2.weight.grad().device(), two);
}

TEST(PipelinePage, TargetsThatDoNotCount) {
  dist::run_ranks(2, [] {
    dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, zeros({1, 784}),
                             {.micro_batches = 2, .cut_after = {"fc1"}});
    GradManager gm;
    pipe.attach(gm);
    const Tensor x = ones({4, 784}), target = tensor(std::vector<int64_t>{0, 0, 0, 3}, {4});
    const auto loss = [](const Tensor& y, const Tensor& t) {
      return nn::cross_entropy(y, t, {.ignore_index = 0});
    };
    pipe.step(gm, x, target, loss, {.ignore_index = 0});
    for (const Tensor& p : pipe.parameters()) EXPECT_TRUE(p.grad().defined());
  });
}

TEST(PipelinePage, SeeingWhatItDoes) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(testing::TempDir());  // for the trace
  testing::internal::CaptureStdout();
  dist::run_ranks(2, [] {
    dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, zeros({1, 784}),
                             {.micro_batches = 2, .cut_after = {"fc1"}});
    GradManager gm;
    pipe.attach(gm);
    const Tensor x = ones({4, 784}), target = tensor(std::vector<int64_t>{0, 1, 2, 3}, {4});
    pipe.record_steps(10);  // on all ranks: keeps the last ten steps
    for (int i = 0; i < 12; ++i) pipe.step(gm, x, target, nn::cross_entropy);
    if (const auto record = pipe.gather_records()) {  // a collective, which gives it to the first rank
      std::cout << to_string(make_report(*record));
      write_trace(*record, "pipeline.json");  // for ui.perfetto.dev
    }
    pipe.record_steps(0);
  });
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("theory"));
  EXPECT_TRUE(std::filesystem::remove("pipeline.json"));
  std::filesystem::current_path(before);
}

TEST(PipelinePage, Checkpoints) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(testing::TempDir());
  dist::run_ranks(2, [] {
    dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, zeros({1, 784}), {.cut_after = {"fc1"}});
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    int steps = 3;
    io::Checkpoint more;  // other state of the program
    more.put("steps", steps);
    pipe.save("runs/last.ckpt", opt, more);

    const io::LoadedCheckpoint loaded = pipe.load("runs/last.ckpt", opt);
    steps = loaded.checkpoint.get<int>("steps");
    EXPECT_EQ(steps, 3);
  });
  EXPECT_TRUE(std::filesystem::exists("runs/last.ckpt"));
  std::filesystem::current_path(before);
}

TEST(PipelinePage, AutomaticRecomputation) {
  testing::internal::CaptureStdout();
  dist::run_ranks(2, [] {
    const Tensor example = zeros({1, 784}), x = zeros({16, 784}), target = zeros({16}, {DType::kI64});
    dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, example,
                             {.stages = 2,
                              .micro_batches = 8,
                              .cut_after = {"fc1"},
                              .memory_limit = 500'000'000,  // bytes of each rank
                              .recompute = dist::Recompute::kAuto});
    GradManager gm;
    pipe.attach(gm);
    pipe.step(gm, x, target, nn::cross_entropy);
    std::cout << pipe.describe();  // which stages run again, and what a rank needs
  });
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("of 500000000 bytes"));
}

TEST(PipelinePage, SchedulesAsData) {
  testing::internal::CaptureStdout();
  const dist::ActionLists lists =
      dist::make_schedule(dist::Schedule::kZeroBubbleH1, {.ranks = 2, .micro_batches = 4});
  std::cout << dist::to_text(lists)[1];          // 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3
  dist::check_schedule(lists);                   // else a ScheduleError says what cannot run
  const double f = 0.010, i = 0.010, w = 0.010;  // seconds
  const dist::SchedulePrediction p = dist::simulate(lists, {{f, i, w}, {f, i, w}});
  std::cout << p.makespan << " s, idle " << p.idle_fraction;
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3"));
  EXPECT_THAT(text, HasSubstr("0.13 s, idle 0.0769"));
}

struct NormNet : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 784, .out = 8}};
  nn::BatchNorm1d norm{this, "norm", {.features = 8}};
  nn::Linear fc2{this, "fc2", {.in = 8, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc2(relu(norm(fc1(x)))); }
};

TEST(PipelinePage, MixedPrecisionAndBatchNormOverReplicas) {
  const data::GeneratedDigits train({.size = 64});
  dist::run_ranks(4, [&] {
    dist::Pipeline<NormNet> pipe([] { return std::make_unique<NormNet>(); }, zeros({2, 784}),
                                 {.stages = 2,
                                  .micro_batches = 2,
                                  .cut_after = {"norm"},
                                  .recompute = dist::Recompute::kAlways,
                                  .deferred_batch_norm = true});
    dist::convert_sync_batchnorm(pipe.module(), pipe.grid().group("replica"));
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1});
    data::DataLoader loader(train, {.batch_size = 16});
    optim::GradScaler scaler({.agree = [](bool found) { return dist::any_rank(found); }});
    for (const data::Batch& b : loader) {
      {
        auto amp = autocast(DType::kF16);
        pipe.step(gm, flatten(b.input, 1), b.target, nn::cross_entropy, {.scaler = &scaler});
      }
      scaler.unscale_(opt);
      pipe.clip_grad_norm_(1.0);  // over all stages
      scaler.step(opt);
      opt.clear_grad();
    }
    EXPECT_EQ(scaler.skipped_steps(), 0);
    const Tensor x = zeros({5, 784});
    pipe.eval();
    const Tensor logits = pipe.forward(x, {.everywhere = true});
    EXPECT_EQ(logits.shape(), (Shape{5, 10}));
  });
}

}  // namespace
}  // namespace gradus
