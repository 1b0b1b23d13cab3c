// Five training steps of StyleGAN and StyleGAN2 against PyTorch's, with mixed styles, given noise, R1, and StyleGAN2's
// lazy penalties. style_steps.py wrote and describes the file.
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/models.h"
#include "gradus/tests/golden/uniform.h"
#include "gradus/train/gan/gan.h"

namespace gradus::golden {
namespace {

constexpr int64_t kSteps = 5, kBatch = 4, kLatent = 5, kSize = 8;

Tensor rand(const std::string& name, const Shape& shape, double scale = 1) {
  std::vector<double> v = uniform(name, shape.product());
  for (double& u : v) u *= scale;
  return tensor(v, shape);
}

// Sets the parameters as `initial` in style_steps.py.
void fill(nn::Module& net) {
  net.to(DType::kF64);
  for (const auto& [name, p] : net.named_parameters()) {
    const bool is_mapping = name.starts_with("mapping.") || name.starts_with("style_mapping.");
    const bool is_affine_bias = name.starts_with("synthesis.") && name.ends_with("affine.bias");
    const double scale = p.dim() < 2 ? 0.125 : is_mapping ? 100 : 1;
    copy_(p, rand(name, p.shape(), scale) + (is_affine_bias ? 1 : 0));
  }
}

// A GAN as a training step uses it.
struct Gan {
  nn::Module &gen, &disc;
  std::function<Tensor(const Tensor& z)> map;
  std::function<Tensor(const Tensor& ws, const std::vector<Tensor>& noise)> synthesize;
  std::function<Tensor(const Tensor& x)> judge;
  std::function<void(const Tensor& w)> update_w_avg;
  std::vector<int64_t> noise_sizes;
};

// Returns the images of the random numbers `what`, and their styles.
std::pair<Tensor, Tensor> images(const Gan& gan, const std::string& what, int64_t batch = kBatch) {
  const auto first = [&](const Tensor& x) { return slice(x, 0, 0, batch); };
  Tensor ws = gan.map(first(rand(what + "z", {kBatch, kLatent}, 2)));
  gan.update_w_avg(ws);
  const Tensor cut = first(tensor({int64_t{2}, ws.size(1), int64_t{3}, int64_t{1}}));
  ws = gan::mix_styles(ws, gan.map(first(rand(what + "mixed", {kBatch, kLatent}, 2))), cut);
  std::vector<Tensor> noise;
  for (const int64_t size : gan.noise_sizes)
    noise.push_back(first(rand(concat(what, "noise", noise.size()), {kBatch, 1, size, size})));
  return {gan.synthesize(ws, noise), ws};
}

// `every`: steps between penalties; 0: R1 is part of the loss, and there is no path length penalty.
void expect_steps(const std::string& name, const Gan& gan, int64_t every, const Tensor& w_avg) {
  optim::AdamOptions adam = {.lr = 1e-2, .betas = {0, 0.99}, .eps = 1e-3};
  if (every) adam = gan::lazy_regularization(adam, every);
  optim::Adam opt_d(gan.disc.parameters(), adam), opt_g(gan.gen.parameters(), adam);
  GradManager gm_d, gm_g;
  gm_d.attach(gan.disc.parameters());
  gm_g.attach(gan.gen.parameters());
  gan::PathLengthPenalty path_length;
  const auto update = [](Recording& recording, optim::Adam& opt, const Tensor& loss) {
    recording.backward(loss);
    opt.step().clear_grad();
    return loss.item<double>();
  };
  std::vector<double> losses;
  for (int64_t i = 0; i < kSteps; ++i) {
    const Tensor real = rand(concat("real", i), {kBatch, 1, kSize, kSize});
    double row[4] = {};
    const Tensor fake = images(gan, concat("d", i)).first;
    {
      Recording recording = gm_d.record();
      const Tensor real_scores = gan.judge(real), fake_scores = gan.judge(fake);
      Tensor loss = gan::logistic_d(real_scores, fake_scores);
      if (!every) {
        const Tensor penalty = 5 * gan::r1(gan.judge, real);
        row[1] = penalty.item<double>();
        loss = loss + penalty;
      }
      row[0] = update(recording, opt_d, loss);
    }
    const bool is_due = every && i % every == 0;
    if (is_due) {
      Recording recording = gm_d.record();
      row[1] = update(recording, opt_d, double(every) * 5 * gan::r1(gan.judge, real));
    }
    {
      Recording recording = gm_g.record();
      row[2] = update(recording, opt_g, gan::logistic_g(gan.judge(images(gan, concat("g", i)).first)));
    }
    if (is_due) {
      Recording recording = gm_g.record();
      const auto [made, ws] = images(gan, concat("path", i), kBatch / 2);
      const Tensor y = rand(concat("y", i), {kBatch / 2, 1, kSize, kSize});
      row[3] = update(recording, opt_g, double(every) * 2 * path_length(made, ws, y));
    }
    losses.insert(losses.end(), row, row + 4);
  }

  const io::SafetensorsFile file = io::load_safetensors("tests/golden/gan/style_steps.safetensors");
  size_t compared = 0;
  // 1e-8 of the scale: Adam divides gradients, which differ by rounding, by their small roots of mean squares.
  const auto expect = [&](const std::string& key, const std::vector<double>& got) {
    const std::vector<double> want = file.at(name + "/" + key).to_vector<double>();
    ASSERT_EQ(got.size(), want.size()) << key;
    double scale = 1;
    for (const double w : want) scale = std::max(scale, std::abs(w));
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-8 * scale) << key << " at " << i;
    ++compared;
  };
  expect("losses", losses);
  expect("path_length", path_length.running_mean().to_vector<double>());
  expect("gen/w_avg", w_avg.to_vector<double>());
  for (const auto& [key, p] : gan.disc.named_parameters()) expect("disc/" + key, p.to_vector<double>());
  for (const auto& [key, p] : gan.gen.named_parameters()) expect("gen/" + key, p.to_vector<double>());
  size_t in_file = 0;
  for (const auto& [key, x] : file.tensors) in_file += key.starts_with(name + "/");
  EXPECT_EQ(compared, in_file);
}

TEST(StyleSteps, OfStyleGAN) {
  models::StyleGANGenerator gen({.size = kSize,
                                 .channels = 1,
                                 .latent = kLatent,
                                 .style = 4,
                                 .mapping_layers = 2,
                                 .channel_base = 16,
                                 .channel_max = 4});
  models::StyleGANDiscriminator disc({.size = kSize, .channels = 1, .channel_base = 16, .channel_max = 4});
  fill(gen);
  fill(disc);
  const models::Scale scale = {.size = kSize, .fade = 0.7};
  expect_steps("stylegan",
               {.gen = gen,
                .disc = disc,
                .map = [&](const Tensor& z) { return gen.mapping(z); },
                .synthesize =
                    [&](const Tensor& ws, const std::vector<Tensor>& noise) {
                      return gen.synthesis(ws, scale, {.planes = noise});
                    },
                .judge = [&](const Tensor& x) { return disc(x, scale); },
                .update_w_avg = [&](const Tensor& w) { gen.update_w_avg(w); },
                .noise_sizes = gen.noise_sizes(scale)},
               0, gen.w_avg);
}

TEST(StyleSteps, OfStyleGAN2) {
  models::StyleGAN2Generator gen({.size = kSize,
                                  .channels = 1,
                                  .latent = kLatent,
                                  .style = 4,
                                  .mapping_layers = 2,
                                  .channel_base = 32,
                                  .channel_max = 4});
  models::StyleGAN2Discriminator disc({.size = kSize, .channels = 1, .channel_base = 32, .channel_max = 4});
  fill(gen);
  fill(disc);
  expect_steps(
      "stylegan2",
      {.gen = gen,
       .disc = disc,
       .map = [&](const Tensor& z) { return gen.mapping(z); },
       .synthesize = [&](const Tensor& ws,
                         const std::vector<Tensor>& noise) { return gen.synthesis(ws, {.planes = noise}); },
       .judge = [&](const Tensor& x) { return disc(x); },
       .update_w_avg = [&](const Tensor& w) { gen.mapping.update_w_avg(w); },
       .noise_sizes = gen.synthesis.noise_sizes()},
      2, gen.mapping.w_avg);
}

}  // namespace
}  // namespace gradus::golden
