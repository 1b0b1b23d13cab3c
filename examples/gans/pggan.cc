// PGGAN: progressive growing from images of 4x4 pixels.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
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
                  s.log("loss/d", gan::wgan_d(real_scores, fake_scores)) + 10 * s.log("penalty", penalty) +
                      0.001 * gan::drift(real_scores));
    s.log("d/real", mean(detach(real_scores)));
    s.log("d/fake", mean(detach(fake_scores)));
  }
  if (!s.trains_gen) return;
  Recording gen_recording = t.gen.record();
  t.gen.update(s, gen_recording, s.log("loss/g", gan::wgan_g(t.discriminate(t.generate(s.gen_fake)))));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  const int64_t base = o.width * o.size / 2;  // so that the largest images have o.width channels
  return networks_of<models::PGGANGenerator, models::PGGANDiscriminator>(
      {.size = o.size, .channels = o.channels, .latent = o.latent, .channel_base = base},
      {.size = o.size, .channels = o.channels, .channel_base = base}, o.size);
}

}  // namespace

const Recipe kPggan = {.name = "pggan",
                       .networks = {.model = "pggan", .size = 32, .width = 32, .latent = 128},
                       .adam = {.lr = 1e-3, .betas = {0, 0.99}},
                       .batch = 64,
                       .grows = true,
                       .is_critic = true,
                       .has_penalty = true,
                       .ema_first = true,  // as in the authors' code
                       .make = make,
                       .step = step};

}  // namespace gradus::examples
