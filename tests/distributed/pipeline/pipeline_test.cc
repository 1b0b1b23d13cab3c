// Pipeline: stages on devices instead of ranks, the bits of a loop over micro-batches, accumulation of
// gradients, loss reductions, shared buffers. equality_test.cc compares all schedules.
#include "gradus/distributed/pipeline/pipeline.h"

#include <gmock/gmock.h>

#include <mutex>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/distributed/pipeline/undivided.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

// Measured cuts and micro-batches, gradient norms, evaluation and outputs, with all stages in one process.
TEST(Pipeline, DoesOnDevicesWhatItDoesOnRanks) {
  const auto train = [](int ranks, PipelineOptions options) {
    std::vector<double> seen;
    std::mutex mutex;
    run_ranks(ranks, [&] {
      manual_seed(5);
      Pipeline<TiedText> pipe(make_f64<TiedText>, Case<TiedText>::input(4, 0), options);
      GradManager gm;
      pipe.attach(gm);
      optim::SGD opt(pipe.parameters(), {.lr = 0.1});
      std::vector<double> mine;
      for (int i = 0; i < 9; ++i) {
        mine.push_back(
            pipe.step(gm, Case<TiedText>::input(8, i), Case<TiedText>::target(8, i), Case<TiedText>::loss));
        mine.push_back(pipe.clip_grad_norm_(0.5));
        opt.step().clear_grad();
      }
      pipe.eval();
      mine.push_back(
          pipe.eval_step(Case<TiedText>::input(7, 9), Case<TiedText>::target(7, 9), Case<TiedText>::loss));
      const Tensor y = pipe.forward(Case<TiedText>::input(5, 3), {.everywhere = true});
      mine.push_back(sum(y * y).item<double>());
      EXPECT_EQ(pipe.stages(), 2);
      const std::lock_guard lock(mutex);
      seen = mine;
    });
    return seen;
  };
  const Device one{DeviceType::kCPU, 1}, two{DeviceType::kCPU, 2};
  const auto want = train(2, {.micro_batches = 2, .cut_after = {"b0"}});
  for (const auto& options :
       {PipelineOptions{.devices = {one, two}},
        PipelineOptions{.devices = {one, two}, .micro_batches = 3, .recompute = Recompute::kAlways}}) {
    const auto got = train(1, options);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12 * std::max(1.0, want[i])) << i;
  }
  EXPECT_THROW(train(1, {.stages = 3, .devices = {one, two}}), ValueError);
}

// Dropout, batch norm and clipping included.
TEST(Pipeline, GivesTheBitsOfTheLoopOverMicroBatches) {
  for (const int micro_batches : {1, 3, 8}) {
    const auto want = train_unet(1, {.micro_batches = micro_batches});
    // Five convolutions with bias, a batch norm, "losses".
    EXPECT_EQ(want.size(), 5u * 2 + 5 + 1);
    expect_unet(want, {.micro_batches = micro_batches}, {2, 4});
    expect_interleaved_unet(want, {.micro_batches = micro_batches});
  }
}

// Two steps before the optimizer's give the sum of two losses' gradients, ties included.
TEST(Pipeline, StepsMayAccumulate) {
  run_ranks(2, [] {
    const auto grads = [](int micro_batches) {
      manual_seed(5);
      Pipeline<TiedText> pipe(make_f64<TiedText>, Case<TiedText>::input(2, 0),
                              {.micro_batches = micro_batches, .cut_after = {"b0"}});
      GradManager gm;
      pipe.attach(gm);
      for (int i = 0; i < 2; ++i)
        pipe.step(gm, Case<TiedText>::input(4, i), Case<TiedText>::target(4, i), Case<TiedText>::loss);
      std::vector<Tensor> all;
      for (const Tensor& p : pipe.parameters()) all.push_back(p.grad());
      return all;
    };
    manual_seed(5);
    const auto model = make_f64<TiedText>();
    GradManager gm;
    gm.attach(model->parameters());
    for (int i = 0; i < 2; ++i) {
      auto recording = gm.record();
      gm.backward(Case<TiedText>::loss((*model)(Case<TiedText>::input(4, i)), Case<TiedText>::target(4, i)));
    }
    manual_seed(5);
    Pipeline<TiedText> pipe(make_f64<TiedText>, Case<TiedText>::input(2, 0), {.cut_after = {"b0"}});
    const auto names = pipe.named_parameters();
    for (const int micro_batches : {1, 3}) {
      const auto got = grads(micro_batches);
      for (size_t i = 0; i < got.size(); ++i)
        expect_near(got[i], model->parameter((names.begin() + std::ptrdiff_t(i))->first).grad(), 1e-12);
    }
  });
}

// Micro-batches and replicas have different numbers of valid targets, one micro-batch none.
TEST(Pipeline, ALossMayBeASumOrAMeanOverValidTargets) {
  const Tensor x = Case<TiedText>::input(12, 0);
  Tensor t = Case<TiedText>::target(12, 0);
  for (int64_t i = 0; i < t.numel(); ++i)
    if (i < 15 || i % 7 < 3) t.ptr<int64_t>()[i] = -100;
  const auto flat = [](const Tensor& y) { return flatten(y, 0, 1); };
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    const auto loss = [&](const Tensor& y, const Tensor& target) {
      return nn::cross_entropy(flat(y), flatten(target, 0, 1), {.reduction = reduction});
    };
    manual_seed(5);
    const auto model = make_f64<TiedText>();
    GradManager whole;
    whole.attach(model->parameters());
    auto recording = whole.record();
    const Tensor want = loss((*model)(x), t);
    whole.backward(want);
    for (const int ranks : {2, 4})
      run_ranks(ranks, [&] {
        manual_seed(5);
        Pipeline<TiedText> pipe(make_f64<TiedText>, Case<TiedText>::input(2, 0),
                                {.stages = 2, .micro_batches = 4, .cut_after = {"b0"}});
        GradManager gm;
        pipe.attach(gm);
        const int64_t rows = 12 / (ranks / 2), begin = get_rank() / 2 * rows;
        const double got = pipe.step(gm, narrow(x, 0, begin, rows), narrow(t, 0, begin, rows), loss,
                                     {.reduction = reduction, .ignore_index = -100});
        EXPECT_NEAR(got, want.item<double>(), 1e-12 * want.item<double>());
        for (const auto& [name, p] : pipe.named_parameters())
          expect_near(p.grad(), model->parameter(name).grad(), 1e-12);
      });
  }
}

// Two stages read a buffer that state_dict() lacks.
struct SharedBuffer : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 6, .out = 8}}, fc2{this, "fc2", {.in = 8, .out = 3}};
  nn::Buffer scale{this, "scale", full({1}, 0.5), {.persistent = false}};
  Tensor forward(const Tensor& x) override { return fc2(fc1(x * scale) * scale); }
};

// Without cuts the constructor measures the stages.
TEST(Pipeline, DevicesShareABufferThatIsNotPersistent) {
  const Tensor x = random_tensor({4, 6}, DType::kF64), target = random_tensor({4, 3}, DType::kF64, 1);
  manual_seed(5);
  const double want = nn::mse_loss((*make_f64<SharedBuffer>())(x), target).item<double>();
  for (const std::vector<std::string>& cut_after : {std::vector<std::string>{"fc1"}, {}})
    run_ranks(1, [&] {
      manual_seed(5);
      Pipeline<SharedBuffer> pipe(make_f64<SharedBuffer>, x,
                                  {.devices = {{DeviceType::kCPU, 1}, {DeviceType::kCPU, 2}},
                                   .micro_batches = 2,
                                   .cut_after = cut_after});
      GradManager gm;
      pipe.attach(gm);
      EXPECT_NEAR(pipe.step(gm, x, target, nn::mse_loss), want, 1e-12);
    });
}

TEST(Pipeline, ARankHoldsItsOwnStagesOnly) {
  run_ranks(2, [] {
    Pipeline<ResidualMLP> pipe(make_f64<ResidualMLP>, random_tensor({2, 6}, DType::kF64),
                               {.cut_after = {"b1"}});
    for (const auto& [name, p] : pipe.module().named_parameters()) {
      const bool first = name.starts_with("in") || name.starts_with("b0") || name.starts_with("b1");
      EXPECT_EQ(p.device().type == DeviceType::kCPU, first == (get_rank() == 0)) << name;
    }
  });
}

}  // namespace
}  // namespace gradus::dist
