// Autocast around a pipeline's step.
#include "gradus/autograd/graph/autocast.h"

#include <gtest/gtest.h>

#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"

namespace gradus::dist {
namespace {

// Dropout, batch norm and clipping included.
TEST(PipelineAutocast, GivesTheBitsOfTheLoopOverMicroBatches) {
  const auto want = train_unet(1, {.micro_batches = 4}, DType::kBF16);
  EXPECT_NE(want, train_unet(1, {.micro_batches = 4}));
  for (const auto& [recompute, every] :
       {std::pair(Recompute::kNever, 0), {Recompute::kAlways, 0}, {Recompute::kAlways, 1}})
    expect_unet(want, {.micro_batches = 4, .recompute = recompute, .recompute_every = every}, {1, 2, 4},
                {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1}, DType::kBF16);
}

// Notes the dtype that came in.
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

// Against the loop, written by hand; messages have 16 bits.
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

// A module and an op of another stage use one weight: each casts it for itself.
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
