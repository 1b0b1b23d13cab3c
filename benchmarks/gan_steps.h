// Training steps of GANs, as in the recipes of examples/gans, on one fixed batch of random images.
#pragma once

#include <vector>

#include "gradus/gradus.h"

namespace gradus::bench {

// As in models::DCGANGeneratorOptions: images of size x size pixels, `width` channels in the last hidden
// layer.
struct DcganStepOptions {
  int64_t size = 64, channels = 3, width = 64, batch = 64;
  Device device = kCPU;
};

// A training step of both networks of a DCGAN. The same generated images are used for the discriminator's and the
// generator's loss.
class DcganStep {
 public:
  // `callbacks` are attached to the parameters of both networks.
  explicit DcganStep(DcganStepOptions o, const std::vector<Callback>& callbacks = {})
      : net_(o),
        real_(tanh(randn({o.batch, o.channels, o.size, o.size}, {.device = o.device}))),
        opt_d_(net_.disc.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}}),
        opt_g_(net_.gen.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}}) {
    gm_d_.attach(net_.disc.parameters(), callbacks);
    gm_g_.attach(net_.gen.parameters(), callbacks);
  }

  nn::Module& net() { return net_; }

  void run() {
    Recording making = gm_g_.record();
    const Tensor fake =
        net_.gen(randn({real_.size(0), net_.gen.options().latent}, {.device = real_.device()}));
    making.pause();
    {
      Recording judging = gm_d_.record();
      const Tensor real_scores = net_.disc(real_), fake_scores = net_.disc(detach(fake));
      judging.backward(gan::vanilla_d(real_scores, fake_scores));
      opt_d_.step().clear_grad();
    }
    making.resume();
    making.backward(gan::vanilla_g(net_.disc(fake)));
    opt_g_.step().clear_grad();
  }

 private:
  struct Net : nn::Module {
    explicit Net(const DcganStepOptions& o)
        : gen{this, "gen", {.size = o.size, .channels = o.channels, .width = o.width}},
          disc{this, "disc", {.size = o.size, .channels = o.channels, .width = o.width}} {
      to(o.device);
    }
    models::DCGANGenerator gen;
    models::DCGANDiscriminator disc;
  };

  Net net_;
  Tensor real_;
  GradManager gm_d_, gm_g_;
  optim::Adam opt_d_, opt_g_;
};

// A training step of a WGAN-GP critic, whose gradient penalty needs double backward.
class WganGpCriticStep {
 public:
  WganGpCriticStep(int64_t size, int64_t width, int64_t batch, Device device = kCPU)
      : gen_({.size = size, .channel_base = width * size}),
        critic_({.size = size, .channel_base = width * size}),
        real_(tanh(randn({batch, 3, size, size}, {.device = device}))),
        opt_(critic_.to(device).parameters(), {.lr = 1e-4, .betas = {0.5, 0.9}}) {
    gen_.to(device);
    gm_.attach(critic_.parameters());
  }

  void run() {
    const int64_t batch = real_.size(0);
    const TensorOptions options{.device = real_.device()};
    const Tensor fake = gen_(randn({batch, gen_.options().latent}, options));
    Recording judging = gm_.record();
    const Tensor real_scores = critic_(real_), fake_scores = critic_(fake);
    const Tensor penalty = gan::gradient_penalty(critic_, real_, fake, rand({batch}, options));
    judging.backward(gan::wgan_d(real_scores, fake_scores) + 10 * penalty);
    opt_.step().clear_grad();
  }

 private:
  models::WGANGPGenerator gen_;
  models::WGANGPDiscriminator critic_;
  Tensor real_;
  GradManager gm_;
  optim::Adam opt_;
};

// A training step of both networks of a progressive GAN at the largest resolution, as in examples/gans/pggan.cc.
class PgganStep {
 public:
  PgganStep(int64_t size, int64_t width, int64_t batch, Device device = kCPU)
      : gen_({.size = size, .channels = 1, .latent = 128, .channel_base = width * size / 2}),
        disc_({.size = size, .channels = 1, .channel_base = width * size / 2}),
        real_(tanh(randn({batch, 1, size, size}, {.device = device}))),
        opt_g_(gen_.to(device).parameters(), {.lr = 1e-3, .betas = {0, 0.99}}),
        opt_d_(disc_.to(device).parameters(), {.lr = 1e-3, .betas = {0, 0.99}}) {
    gm_g_.attach(gen_.parameters());
    gm_d_.attach(disc_.parameters());
  }

  void run() {
    const int64_t batch = real_.size(0);
    const TensorOptions options{.device = real_.device()};
    {
      const Tensor fake = gen_(randn({batch, 128}, options));
      Recording judging = gm_d_.record();
      const Tensor real_scores = disc_(real_), fake_scores = disc_(fake);
      const Tensor penalty = gan::gradient_penalty(disc_, real_, fake, rand({batch}, options));
      judging.backward(gan::wgan_d(real_scores, fake_scores) + 10 * penalty +
                       0.001 * gan::drift(real_scores));
      opt_d_.step().clear_grad();
    }
    Recording making = gm_g_.record();
    making.backward(gan::wgan_g(disc_(gen_(randn({batch, 128}, options)))));
    opt_g_.step().clear_grad();
  }

 private:
  models::PGGANGenerator gen_;
  models::PGGANDiscriminator disc_;
  Tensor real_;
  GradManager gm_g_, gm_d_;
  optim::Adam opt_g_, opt_d_;
};

}  // namespace gradus::bench
