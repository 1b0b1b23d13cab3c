// R3GAN: residual networks without normalization, the relativistic loss, and R1 and R2 in every step.
// Source: Huang et al., "The GAN is dead; long live the GAN! A modern baseline GAN", NeurIPS 2024.
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

void step(GanStep& s, Trainer& t) {
  const Tensor fake = t.generate(s.fake);
  {
    Recording disc_recording = t.disc.record();
    const auto [real_scores, fake_scores] = t.discriminate(s, fake);
    const Tensor r1 = gan::r1([&](const Tensor& x) { return t.discriminate(x, s.real_labels); }, s.real);
    const Tensor r2 = gan::r2([&](const Tensor& x) { return t.discriminate(x, s.fake.labels); }, fake);
    t.disc.update(s, disc_recording,
                  s.log("loss/d", gan::relativistic_d(real_scores, fake_scores)) +
                      t.gamma() / 2 * s.log("penalty", r1 + r2));
    s.log("d/real", mean(detach(real_scores)));
    s.log("d/fake", mean(detach(fake_scores)));
  }
  if (!s.trains_gen) return;
  Recording gen_recording = t.gen.record();
  const Tensor real_scores = t.discriminate(s.real, s.real_labels);
  const Tensor fake_scores = t.discriminate(t.generate(s.gen_fake), s.gen_fake.labels);
  t.gen.update(s, gen_recording, s.log("loss/g", gan::relativistic_g(real_scores, fake_scores)));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  std::vector<int64_t> widths;  // of 4x4, 8x8, ... pixels; the largest images have o.width channels
  for (int64_t size = 4; size <= o.size; size *= 2)
    widths.push_back(std::min(o.width * o.size / size, 4 * o.width));
  return networks_of<models::R3GANGenerator, models::R3GANDiscriminator>(
      {.widths = widths, .channels = o.channels, .latent = o.latent, .classes = o.classes},
      {.widths = widths, .channels = o.channels, .classes = o.classes}, o.size);
}

}  // namespace

const Recipe kR3gan = {.name = "r3gan",
                       .networks = {.model = "r3gan", .size = 32, .width = 32, .latent = 64},
                       .adam = {.lr = 2e-4, .betas = {0, 0.99}},
                       .batch = 64,
                       .takes_labels = true,
                       .is_critic = true,
                       .gamma = [](int64_t, int64_t) { return 1.0; },
                       .make = make,
                       .step = step};

}  // namespace gradus::examples
