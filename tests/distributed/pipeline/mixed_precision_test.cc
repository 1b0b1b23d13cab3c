// GradScaler in pipelines, where only the last stage has the loss to scale, and autocast around a step.
#include "gradus/optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/helpers.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"

namespace gradus::dist {
namespace {

Tensor input(int step) { return random_tensor({8, 6}, DType::kF32, 10 + step); }
Tensor target(int step) { return random_tensor({8, 3}, DType::kF32, 20 + step); }

std::unique_ptr<ResidualMLP> make() { return std::make_unique<ResidualMLP>(); }

// A step is skipped on all ranks if any rank found an infinite gradient.
optim::GradScalerOptions agreeing(double init_scale = 65536) {
  return {.init_scale = init_scale, .agree = [](bool found) { return any_rank(found); }};
}

// The results of all ranks together.
struct Trained {
  std::vector<double> losses;
  std::vector<double> scales;  // after each step
  std::vector<bool> stepped;
  std::map<std::string, std::vector<double>> parameters;
  bool operator==(const Trained&) const = default;
};

// Trains replicas of `stages` stages in f16 from the given scale. At step `spoiled` (-1: never) a gradient of
// the last rank is infinite.
Trained train_in_f16(int stages, int replicas, Schedule schedule, double init_scale, int spoiled = -1) {
  constexpr int kSteps = 6;
  Trained all;
  std::mutex mutex;
  run_ranks(stages * replicas, [&] {
    manual_seed(5);
    set_num_threads(1);
    PipelineOptions options{.stages = stages, .schedule = schedule, .micro_batches = 2};
    if (stages == 2) options.cut_after = {"b1"};
    Pipeline<ResidualMLP> pipe(make, zeros({2, 6}), options);
    GradManager gm;
    pipe.attach(gm);
    int step = 0;
    const int last = stages * replicas - 1;
    if (get_rank() == last)
      gm.attach(pipe.parameters().back(),
                [&](const Tensor&, const Tensor& grad) { return step == spoiled ? grad * INFINITY : grad; });
    optim::SGD opt(pipe.parameters(), {.lr = 0.05, .momentum = 0.9});
    optim::GradScaler scaler(agreeing(init_scale));
    Trained mine;
    const int64_t rows = 8 / replicas, begin = get_rank() / stages * rows;
    for (; step < kSteps; ++step) {
      const auto amp = autocast(DType::kF16);
      mine.losses.push_back(pipe.step(gm, narrow(input(step), 0, begin, rows),
                                      narrow(target(step), 0, begin, rows), nn::mse_loss,
                                      {.scaler = &scaler}));
      EXPECT_THROW(opt.step(), StateError);  // the gradients are still scaled
      EXPECT_THROW(pipe.clip_grad_norm_(1.0), StateError);
      EXPECT_THROW(scaler.step(opt, {.clip_norm = 1.0}), StateError);  // would clip by one stage's norm
      scaler.unscale_(opt);
      pipe.clip_grad_norm_(1.0);
      mine.stepped.push_back(scaler.step(opt));
      mine.scales.push_back(scaler.scale());
      opt.clear_grad();
    }
    const std::lock_guard lock(mutex);
    if (all.losses.empty()) all = mine;
    EXPECT_EQ(mine.losses, all.losses);
    EXPECT_EQ(mine.scales, all.scales);
    EXPECT_EQ(mine.stepped, all.stepped);
    for (const auto& [name, p] : pipe.named_parameters()) {
      const auto [it, fresh] = all.parameters.emplace(name, p.to_vector<double>());
      EXPECT_EQ(it->second, p.to_vector<double>()) << name;
    }
  });
  return all;
}

// At a scale of 2^20 the first gradients are infinite.
TEST(PipelineGradScaler, FindsTheScaleThatOneProcessFinds) {
  const Trained want = train_in_f16(1, 1, Schedule::k1F1B, 0x1p20);
  EXPECT_FALSE(want.stepped.front());
  EXPECT_TRUE(want.stepped.back());
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1})
    EXPECT_EQ(train_in_f16(2, 1, schedule, 0x1p20), want) << name_of(schedule);
}

// The last rank has one stage of one replica.
TEST(PipelineGradScaler, AnInfinityOnOneRankSkipsTheStepOnAll) {
  for (const int replicas : {1, 2}) {
    const Trained got = train_in_f16(2, replicas, Schedule::k1F1B, 1024, 2);
    EXPECT_EQ(got.stepped, (std::vector<bool>{true, true, false, true, true, true}));
    EXPECT_EQ(got.scales, (std::vector<double>{1024, 1024, 512, 512, 512, 512}));
  }
}

// The gradients of a tied weight are summed over ranks, and over two steps.
TEST(PipelineGradScaler, ATiedWeightCountsAsScaled) {
  const Tensor x = tensor(std::vector<int64_t>{1, 2, 3, 0, 5, 6, 7, 8}, {4, 2});
  const auto loss = [](const Tensor& y, const Tensor& t) {
    return nn::cross_entropy(flatten(y, 0, 1), flatten(t, 0, 1));
  };
  manual_seed(5);
  const auto model = make_f64<TiedText>();
  GradManager whole;
  whole.attach(model->parameters());
  for (int i = 0; i < 2; ++i) {
    const auto recording = whole.record();
    whole.backward(loss((*model)(x), x));
  }
  run_ranks(2, [&] {
    manual_seed(5);
    Pipeline<TiedText> pipe(make_f64<TiedText>, x, {.micro_batches = 2, .cut_after = {"b0"}});
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1});
    optim::GradScaler scaler(agreeing());
    for (int i = 0; i < 2; ++i) pipe.step(gm, x, x, loss, {.scaler = &scaler});
    scaler.unscale_(opt);
    for (const auto& [name, p] : pipe.named_parameters())
      expect_near(p.grad(), model->parameter(name).grad(), 1e-12);
  });
}

TEST(PipelineGradScaler, NeedsRanksThatAgree) {
  run_ranks(2, [] {
    Pipeline<ResidualMLP> pipe(make, zeros({2, 6}), {.micro_batches = 1, .cut_after = {"b1"}});
    GradManager gm;
    pipe.attach(gm);
    optim::GradScaler lonely;
    EXPECT_THROW(pipe.step(gm, input(0), target(0), nn::mse_loss, {.scaler = &lonely}), ValueError);
    optim::GradScaler off({.enabled = false});
    pipe.step(gm, input(0), target(0), nn::mse_loss, {.scaler = &off});
    optim::SGD opt(pipe.parameters(), {.lr = 0.05});
    EXPECT_TRUE(off.step(opt));
    opt.clear_grad();
    optim::GradScaler other(agreeing(get_rank() == 0 ? 1024 : 512));
    EXPECT_THROW(pipe.step(gm, input(0), target(0), nn::mse_loss, {.scaler = &other}), MismatchError);
  });
}

// ---- autocast around a step ----

// Dropout, batch norm and clipping included.
TEST(PipelineAutocast, GivesTheBitsOfTheLoopOverMicroBatches) {
  const auto want = train_unet(1, {.micro_batches = 4}, DType::kBF16);
  EXPECT_NE(want, train_unet(1, {.micro_batches = 4}));
  for (const auto& [recompute, every] :
       {std::pair(Recompute::kNever, 0), {Recompute::kAlways, 0}, {Recompute::kAlways, 1}})
    expect_unet(want, {.micro_batches = 4, .recompute = recompute, .recompute_every = every},
                /*ranks=*/{1, 2, 4}, {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1},
                DType::kBF16);
}

// Stores the dtype of its input.
struct Noting : nn::Layer {
  using Layer::Layer;
  nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
  DType seen = DType::kBool;
  Tensor forward(const Tensor& x) override {
    if (x.device() == kCPU) seen = x.dtype();
    return fc(x);
  }
};
struct TwoNoting : nn::Layer {
  Noting a{this, "a"}, b{this, "b"};
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

// Gradients have the bits of a loop over micro-batches; the second stage receives 16-bit activations.
TEST(PipelineAutocast, MessagesHaveTheDtypeOfTheirOps) {
  const Tensor x = random_tensor({8, 6}), t = random_tensor({8, 6}, DType::kF32, 2);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    manual_seed(5);
    TwoNoting model;
    GradManager loop;
    loop.attach(model.parameters());
    const auto amp = autocast(dtype);
    for (int k = 0; k < 2; ++k) {
      const auto recording = loop.record();
      loop.backward(nn::mse_loss(model(narrow(x, 0, 4 * k, 4)), narrow(t, 0, 4 * k, 4)) * 0.5);
    }
    run_ranks(2, [&] {
      manual_seed(5);
      Pipeline<TwoNoting> pipe([] { return std::make_unique<TwoNoting>(); }, zeros({2, 6}),
                               {.micro_batches = 2, .cut_after = {"a"}});
      GradManager gm;
      pipe.attach(gm);
      const auto scope = autocast(dtype);
      pipe.step(gm, x, t, nn::mse_loss);
      for (const auto& [name, p] : pipe.named_parameters())
        EXPECT_EQ(p.grad().to_vector<double>(), model.parameter(name).grad().to_vector<double>()) << name;
      EXPECT_EQ(pipe.module().b.seen, get_rank() == 1 ? dtype : DType::kBool);
    });
  }
}

// A module and an op of another stage use one weight, which each stage casts separately.
struct Mirror : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
  Tensor forward(const Tensor& x) override { return linear(tanh(fc(x)), fc.weight); }
};

TEST(PipelineAutocast, TiedWeightsAreCastOnEachRank) {
  run_ranks(2, [] {
    Pipeline<Mirror> pipe([] { return std::make_unique<Mirror>(); }, zeros({2, 6}),
                          {.micro_batches = 2, .cut_after = {"fc"}});
    GradManager gm;
    pipe.attach(gm);
    const auto amp = autocast(DType::kBF16);
    pipe.step(gm, random_tensor({8, 6}), zeros({8, 6}), nn::mse_loss);
    EXPECT_EQ(pipe.module().fc.weight.grad().dtype(), DType::kF32);
  });
}

}  // namespace
}  // namespace gradus::dist
