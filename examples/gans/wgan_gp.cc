// WGAN-GP: a critic with a gradient penalty, and five steps of the critic for each of the generator.
// Source: Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017; for images of more than 32
// pixels the networks of open-mmlab/mmgeneration, configs/wgan-gp.
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

void step(GanStep& s, Trainer& t) {
  const Tensor fake = t.generate(s.fake);
  {
    Recording disc_recording = t.disc.record();
    const auto [real_scores, fake_scores] = t.discriminate(s, fake);
    const Tensor penalty =
        gan::gradient_penalty([&](const Tensor& x) { return t.discriminate(x); }, s.real, fake, s.alpha);
    t.disc.update(s, disc_recording,
                  s.log("loss/d", gan::wgan_d(real_scores, fake_scores)) + 10 * s.log("penalty", penalty));
    s.log("d/real", mean(detach(real_scores)));
    s.log("d/fake", mean(detach(fake_scores)));
  }
  if (!s.trains_gen) return;
  Recording gen_recording = t.gen.record();
  t.gen.update(s, gen_recording, s.log("loss/g", gan::wgan_g(t.discriminate(t.generate(s.gen_fake)))));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  if (o.size == 28 || o.size == 32)
    return networks_of<models::WGANGPSmallGenerator, models::WGANGPSmallDiscriminator>(
        {.size = o.size, .channels = o.channels, .latent = o.latent, .width = o.width, .sigmoid = false},
        {.size = o.size, .channels = o.channels, .width = o.width}, o.size);
  const int64_t base = o.width * o.size;
  return networks_of<models::WGANGPGenerator, models::WGANGPDiscriminator>(
      {.size = o.size, .channels = o.channels, .latent = o.latent, .channel_base = base},
      {.size = o.size, .channels = o.channels, .channel_base = base}, o.size);
}

}  // namespace

const Recipe kWganGp = {.name = "wgan_gp",
                        .networks = {.model = "wgan_gp", .size = 64, .width = 64, .latent = 128},
                        .adam = {.lr = 1e-4, .betas = {0.5, 0.9}},
                        .batch = 64,
                        .disc_steps = 5,
                        .is_critic = true,
                        .has_penalty = true,
                        .make = make,
                        .step = step};

}  // namespace gradus::examples
