// SNGAN: residual networks with spectral normalization and the hinge loss; with classes, a projection discriminator.
// Source: Miyato et al., "Spectral normalization for generative adversarial networks"; Miyato and Koyama, "cGANs
// with projection discriminator", both ICLR 2018.
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

void step(GanStep& s, Trainer& t) {
  const Tensor fake = t.generate(s.fake);
  {
    Recording disc_recording = t.disc.record();
    const auto [real_scores, fake_scores] = t.discriminate(s, fake);
    t.disc.update(s, disc_recording, s.log("loss/d", gan::hinge_d(real_scores, fake_scores)));
    s.log("d/real", mean(detach(real_scores)));
    s.log("d/fake", mean(detach(fake_scores)));
  }
  if (!s.trains_gen) return;
  Recording gen_recording = t.gen.record();
  const Tensor scores = t.discriminate(t.generate(s.gen_fake), s.gen_fake.labels);
  t.gen.update(s, gen_recording, s.log("loss/g", gan::hinge_g(scores)));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  return networks_of<models::SNGANGenerator, models::SNGANDiscriminator>(
      {.size = o.size, .channels = o.channels, .latent = o.latent, .classes = o.classes, .width = o.width},
      {.size = o.size, .channels = o.channels, .classes = o.classes, .width = o.width}, o.size);
}

}  // namespace

const Recipe kSngan = {.name = "sngan",
                       .networks = {.model = "sngan", .size = 32, .width = 64, .latent = 128},
                       .adam = {.lr = 2e-4, .betas = {0.5, 0.999}},
                       .batch = 64,
                       .disc_steps = 5,
                       .takes_labels = true,
                       .is_critic = true,
                       .make = make,
                       .step = step};

}  // namespace gradus::examples
