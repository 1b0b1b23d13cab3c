// The program of docs/guide/gans.md: trains a WGAN-GP on two ranks to draw from eight Gaussians on a circle.
// Prints the share of its samples at each. An argument replaces the number of training images, 3,000,000.
#include <cmath>
#include <iostream>
#include <numbers>
#include <string>

#include "gradus/gradus.h"
using namespace gradus;

struct Ring : data::Dataset {  // eight Gaussians on a circle
  int64_t size() const override { return 100'000; }
  data::Sample get(int64_t i) const override {
    const double a = 2 * std::numbers::pi * double(i % 8) / 8;
    return {.input = tensor({float(2 * std::cos(a)), float(2 * std::sin(a))}) + 0.1 * randn({2})};
  }
};

struct Mlp : nn::Layer {
  Mlp(Module* parent, std::string name, int64_t out)
      : Layer(parent, std::move(name)), last(this, "last", {.in = 128, .out = out}) {}
  nn::Linear first{this, "first", {.in = 2, .out = 128}}, middle{this, "middle", {.in = 128, .out = 128}},
      last;
  Tensor forward(const Tensor& x) override {
    return last(leaky_relu(middle(leaky_relu(first(x), 0.2)), 0.2));
  }
};

struct Gan : nn::Module {
  Mlp gen{this, "gen", 2}, disc{this, "disc", 1};
};

// The share of 10,000 samples at each of the eight places, within three standard deviations.
void print_shares(Gan& net, const gan::Ema& ema) {
  const nn::ParameterScope averaged(net.gen, ema.weights());
  const std::vector<float> xy = net.gen(randn({10'000, 2})).to_vector<float>();
  double shares[8] = {};
  for (size_t i = 0; i < xy.size(); i += 2) {
    const double x = xy[i], y = xy[i + 1], mode = std::round(std::atan2(y, x) * 4 / std::numbers::pi);
    const double a = mode * std::numbers::pi / 4;
    if (std::hypot(x - 2 * std::cos(a), y - 2 * std::sin(a)) < 0.3) shares[(int(mode) + 8) % 8] += 1e-4;
  }
  for (const double share : shares) std::cout << share << ' ';
  std::cout << std::endl;
}

void run(int64_t images) {
  Gan net;
  data::DataLoader loader(Ring(), {.global_batch_size = 256, .shuffle = true, .drop_last = true});
  dist::SeparateDistributedDataParallel ddp(net);
  GradManager gm_d, gm_g;
  ddp.attach(gm_d, net.disc);
  ddp.attach(gm_g, net.gen);
  optim::Adam opt_d(net.disc.parameters(), {.lr = 2e-3, .betas = {0.5, 0.9}});
  optim::Adam opt_g(net.gen.parameters(), {.lr = 2e-3, .betas = {0.5, 0.9}});
  gan::Ema ema(net.gen, {.half_life_images = 10'000});
  training::Training training(
      "ring", {.images = images, .log_interval = 500, .checkpoint_dir = "runs/ring"}, loader,
      {{"model", net}, {"optimizer_disc", opt_d}, {"optimizer_gen", opt_g}, {"ema", ema}});

  for (training::Step& s : training) {  // resumed where it was; log, checkpoints, Ctrl-C
    {
      auto recording = gm_d.record();
      const Tensor real = s.batch().input, fake = net.gen(s.randn({2}));  // the same for any number of ranks
      const Tensor penalty = gan::gradient_penalty(net.disc, real, fake, s.rand());
      gm_d.backward(s.log("loss/d", gan::wgan_d(net.disc(real), net.disc(fake)) + penalty));
      opt_d.step().clear_grad();
    }
    if (!s.every(5)) continue;  // five critic steps for each of the generator
    {
      auto recording = gm_g.record();
      gm_g.backward(s.log("loss/g", gan::wgan_g(net.disc(net.gen(s.randn({2}))))));
      opt_g.step().clear_grad();
    }
    ema.update(s.images());
  }
  if (dist::get_rank() == 0) print_shares(net, ema);
}

int main(int argc, char** argv) {
  const int64_t images = argc > 1 ? std::stoll(argv[1]) : 3'000'000;
  return dist::launcher({.nproc_per_node = 2}, [&] { run(images); });
}
