// Whole training steps of small networks on the emulated cuda:0, whose losses follow the CPU's: a GPT, an LSTM, a
// vision transformer, a PGGAN that grows, and a StyleGAN2.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/tests/cuda/training/follow_cpu.h"
#include "gradus/train/gan/gan.h"

namespace gradus {
namespace {

constexpr int kSteps = 20;

// Predicts random tokens. The loss of step `overflowing_step` is infinite.
Losses gpt_with_overflow(Precision precision, Device device, int overflowing_step) {
  constexpr int64_t kVocabulary = 11, kContext = 8;
  manual_seed(5);
  models::GPT net(
      {.vocabulary = kVocabulary, .context = kContext, .layers = 2, .heads = 2, .width = 16, .dropout = 0});
  net.to(precision.dtype).to(device);
  GradManager gm;
  gm.attach(net.parameters());
  optim::AdamW opt(net.parameters(), {.lr = 3e-3});
  Updates updates(precision);
  for (int step = 0; step < kSteps; ++step) {
    manual_seed(1000 + uint64_t(step));
    const Tensor tokens = raw::to(randint(kVocabulary, {2, kContext + 1}), device);
    auto recording = gm.record();
    const auto amp = precision.scope();
    const Tensor logits = net(slice(tokens, 1, 0, kContext));
    EXPECT_EQ(logits.dtype(), precision.computes_in());
    Tensor loss = nn::cross_entropy(flatten(logits, 0, 1), flatten(slice(tokens, 1, 1, kContext + 1)));
    if (step == overflowing_step) loss = loss * std::numeric_limits<double>::infinity();
    updates.update(gm, opt, loss, {.clip_norm = 1.0});
  }
  return updates.losses;
}
Losses gpt(Precision precision, Device device) { return gpt_with_overflow(precision, device, -1); }

TEST(Training, Gpt) { expect_follow(gpt, kF32); }
TEST(Training, GptInF64) { expect_follow(gpt, kF64); }
TEST(Training, GptInMixedPrecision) { expect_follow(gpt, kMixed); }
TEST(Training, GptSkipsAStepThatOverflows) {
  const auto train = [](Device device) {
    Losses losses = gpt_with_overflow(kMixed, device, 7);
    EXPECT_TRUE(std::isinf(losses[7]));
    losses.erase(losses.begin() + 7);
    return losses;
  };
  expect_follow(train, kMixed.tolerance);
}

// Classifies a sequence by the last output: x [N,T,6] -> [N,5].
struct SequenceClassifier final : nn::Layer {
  nn::LSTM lstm{this, "lstm", {.input_size = 6, .hidden_size = 12, .num_layers = 2, .batch_first = true}};
  nn::Linear head{this, "head", {.in = 12, .out = 5}};

  Tensor forward(const Tensor& x) override { return head(select(lstm(x).output, 1, -1)); }
};

Losses lstm(Precision precision, Device device) {
  manual_seed(6);
  SequenceClassifier net;
  return classify(net, {3, 5, 6}, 5, kSteps, precision, device);
}

TEST(Training, Lstm) { expect_follow(lstm, kF32); }
TEST(Training, LstmInF64) { expect_follow(lstm, kF64); }
TEST(Training, LstmInMixedPrecision) { expect_follow(lstm, kMixed); }

// A vision transformer: 9 patches of 4x4 pixels and a class token, which is classified: x [N,1,12,12] -> [N,5].
// Source: Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021.
struct VisionTransformer final : nn::Layer {
  static constexpr int64_t kWidth = 16, kPatches = 9;
  nn::Conv2d patches{this, "patches", {.in = 1, .out = kWidth, .kernel = 4, .stride = 4}};
  nn::Parameter class_token{this, "class_token", zeros({1, 1, kWidth})};
  nn::Parameter positions{this, "positions", 0.02 * randn({1, kPatches + 1, kWidth})};
  nn::TransformerEncoder encoder{this,
                                 "encoder",
                                 {.layer = {.d_model = kWidth,
                                            .nhead = 2,
                                            .dim_feedforward = 32,
                                            .dropout = 0,
                                            .activation = nn::TransformerActivation::kGELU,
                                            .batch_first = true,
                                            .norm_first = true},
                                  .num_layers = 2,
                                  .norm = true}};
  nn::Linear head{this, "head", {.in = kWidth, .out = 5}};

  Tensor forward(const Tensor& x) override {
    const Tensor tokens = transpose(flatten(patches(x), 2), 1, 2);  // [N,kPatches,kWidth]
    const Tensor first = expand(class_token, {x.size(0), 1, kWidth});
    return head(select(encoder(cat({first, tokens}, 1) + positions), 1, 0));
  }
};

Losses vit(Precision precision, Device device) {
  manual_seed(7);
  VisionTransformer net;
  return classify(net, {2, 1, 12, 12}, 5, kSteps, precision, device);
}

TEST(Training, VisionTransformer) { expect_follow(vit, kF32); }
TEST(Training, VisionTransformerInF64) { expect_follow(vit, kF64); }
TEST(Training, VisionTransformerInMixedPrecision) { expect_follow(vit, kMixed); }

// WGAN-GP, as the example trains it. The losses of both networks, in turn.
Losses pggan(Precision precision, Device device) {
  constexpr int64_t kBatch = 4, kLatent = 8;
  manual_seed(8);
  models::PGGANGenerator gen(
      {.size = 8, .channels = 1, .latent = kLatent, .channel_base = 16, .channel_max = 8});
  models::PGGANDiscriminator disc({.size = 8, .channels = 1, .channel_base = 16, .channel_max = 8});
  gen.to(precision.dtype).to(device);
  disc.to(precision.dtype).to(device);
  GradManager gm_gen, gm_disc;
  gm_gen.attach(gen.parameters());
  gm_disc.attach(disc.parameters());
  std::optional<optim::Adam> opt_gen, opt_disc;
  // 6 steps of 4x4 pixels, 10 that fade in 8x8 pixels, and 4 of 8x8 pixels.
  const gan::Growth growth({{.size = 4, .images = 6 * kBatch}, {.size = 8}}, {.fade_images = 10 * kBatch});
  int64_t changes = -1;
  Updates updates(precision);
  for (int step = 0; step < kSteps; ++step) {
    const gan::Growth::State at = growth.at(step * kBatch);
    if (at.changes != changes) {
      const optim::AdamOptions adam{.betas = {0, 0.99}};
      opt_gen.emplace(gen.parameters(), adam);
      opt_disc.emplace(disc.parameters(), adam);
      changes = at.changes;
    }
    const models::Scale scale{.size = at.size, .fade = at.fade};
    const Samples images({kBatch, 1, 8, 8}, 1, 2 * step, precision.dtype, device),
        noise({kBatch, kLatent}, 1, 2 * step + 1, precision.dtype, device);
    const Tensor alpha = rand({kBatch}, {precision.dtype, device});
    const Tensor real = gan::scaled_images(images.x, at.size, at.fade);
    const auto score = [&](const Tensor& x) { return disc(x, scale); };
    const auto amp = precision.scope();
    {
      const Tensor fake = gen(noise.x, scale);
      auto recording = gm_disc.record();
      const Tensor real_scores = score(real), fake_scores = score(fake);
      EXPECT_EQ(real_scores.dtype(), precision.computes_in());
      const Tensor penalty = gan::gradient_penalty(score, real, fake, alpha);
      updates.update(gm_disc, *opt_disc,
                     gan::wgan_d(real_scores, fake_scores) + 10 * penalty + 0.001 * gan::drift(real_scores));
    }
    auto recording = gm_gen.record();
    updates.update(gm_gen, *opt_gen, gan::wgan_g(score(gen(noise.x, scale))));
  }
  return updates.losses;
}

TEST(Training, Pggan) { expect_follow(pggan, kF32); }
TEST(Training, PgganInF64) { expect_follow(pggan, kF64); }
TEST(Training, PgganInMixedPrecision) { expect_follow(pggan, kMixed); }

// Logistic losses with R1 and style mixing. The losses of both networks, in turn.
Losses stylegan2(Precision precision, Device device) {
  constexpr int64_t kBatch = 4, kLatent = 6;
  manual_seed(9);
  models::StyleGAN2Generator gen({.size = 8,
                                  .channels = 1,
                                  .latent = kLatent,
                                  .style = 6,
                                  .mapping_layers = 2,
                                  .channel_base = 64,
                                  .channel_max = 8});
  models::StyleGAN2Discriminator disc({.size = 8, .channels = 1, .channel_base = 64, .channel_max = 8});
  gen.to(precision.dtype).to(device);
  disc.to(precision.dtype).to(device);
  GradManager gm_gen, gm_disc;
  gm_gen.attach(gen.parameters());
  gm_disc.attach(disc.parameters());
  const optim::AdamOptions adam{.lr = 2e-3, .betas = {0, 0.99}};
  optim::Adam opt_gen(gen.parameters(), adam), opt_disc(disc.parameters(), adam);
  Updates updates(precision);
  for (int step = 0; step < kSteps; ++step) {
    const Samples images({kBatch, 1, 8, 8}, 1, 2 * step, precision.dtype, device),
        noise({kBatch, kLatent}, 1, 2 * step + 1, precision.dtype, device);
    const auto generate = [&] {
      const Tensor ws = gen.mapping(noise.x),
                   cut = randint(1, 4, {}, {.dtype = DType::kI64, .device = device});
      return gen.synthesis(gan::mix_styles(ws, flip(ws, {0}), cut), {.mode = nn::NoiseMode::kFixed});
    };
    const auto amp = precision.scope();
    {
      const Tensor fake = generate();
      auto recording = gm_disc.record();
      const Tensor real_scores = disc(images.x), fake_scores = disc(fake);
      EXPECT_EQ(real_scores.dtype(), precision.computes_in());
      const Tensor penalty = gan::r1(disc, images.x);
      updates.update(gm_disc, opt_disc, gan::logistic_d(real_scores, fake_scores) + 0.5 * penalty);
    }
    auto recording = gm_gen.record();
    updates.update(gm_gen, opt_gen, gan::logistic_g(disc(generate())));
  }
  return updates.losses;
}

TEST(Training, Stylegan2) { expect_follow(stylegan2, kF32); }
TEST(Training, Stylegan2InF64) { expect_follow(stylegan2, kF64); }
TEST(Training, Stylegan2InMixedPrecision) { expect_follow(stylegan2, kMixed); }

}  // namespace
}  // namespace gradus
