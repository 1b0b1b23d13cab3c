// LSGAN: squared distances of scores from 1 and 0.
// Source: Mao et al., "Least squares generative adversarial networks", ICCV 2017; the networks and the
// optimizer of open-mmlab/mmgeneration, configs/lsgan.
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

void step(GanStep& s, Trainer& t) {
  const Tensor fake = t.generate(s.fake);
  {
    Recording disc_recording = t.disc.record();
    const auto [real_scores, fake_scores] = t.discriminate(s, fake);
    t.disc.update(s, disc_recording, s.log("loss/d", gan::lsgan_d(real_scores, fake_scores)));
    s.log("d/real", mean(detach(real_scores)));
    s.log("d/fake", mean(detach(fake_scores)));
  }
  if (!s.trains_gen) return;
  Recording gen_recording = t.gen.record();
  t.gen.update(s, gen_recording, s.log("loss/g", gan::lsgan_g(t.discriminate(t.generate(s.gen_fake)))));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  return networks_of<models::LSGANGenerator, models::LSGANDiscriminator>(
      {.size = o.size, .channels = o.channels, .width = 4 * o.width, .latent = o.latent},
      {.size = o.size, .channels = o.channels, .width = o.disc_width ? o.disc_width : o.width}, o.size);
}

}  // namespace

const Recipe kLsgan = {.name = "lsgan",
                       .networks = {.model = "lsgan", .size = 64, .width = 64, .latent = 1024},
                       .adam = {.lr = 1e-3, .betas = {0.5, 0.99}},
                       .make = make,
                       .step = step};

}  // namespace gradus::examples
