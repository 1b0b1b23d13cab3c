// StyleGAN, which grows as PGGAN: the logistic loss with R1 in every step.
// Source: Karras et al., "A style-based generator architecture for GANs", CVPR 2019.
#include "gradus/examples/gans/style_networks.h"
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

void step(GanStep& s, Trainer& t) {
  const Tensor fake = t.generate(s.fake);
  {
    Recording disc_recording = t.disc.record();
    const auto [real_scores, fake_scores] = t.discriminate(s, fake);
    const Tensor penalty = gan::r1([&](const Tensor& x) { return t.discriminate(x); }, s.real);
    t.disc.update(s, disc_recording,
                  s.log("loss/d", gan::logistic_d(real_scores, fake_scores)) +
                      t.gamma() / 2 * s.log("penalty", penalty));
    s.log("d/real", mean(sigmoid(detach(real_scores))));
    s.log("d/fake", mean(sigmoid(detach(fake_scores))));
  }
  if (!s.trains_gen) return;
  Recording gen_recording = t.gen.record();
  t.gen.update(s, gen_recording, s.log("loss/g", gan::logistic_g(t.discriminate(t.generate(s.gen_fake)))));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  const int64_t base = o.width * o.size / 2;  // so that the largest images have o.width channels
  return std::make_unique<StyleNetworksOf<models::StyleGANGenerator, models::StyleGANDiscriminator>>(
      models::StyleGANGeneratorOptions{.size = o.size,
                                       .channels = o.channels,
                                       .latent = o.latent,
                                       .style = o.latent,
                                       .mapping_layers = 4,
                                       .channel_base = base,
                                       .channel_max = 128},
      models::StyleGANDiscriminatorOptions{
          .size = o.size, .channels = o.channels, .channel_base = base, .channel_max = 128},
      o.size);
}

}  // namespace

const Recipe kStyleGan1 = {.name = "stylegan1",
                           .networks = {.model = "stylegan1", .size = 32, .width = 16, .latent = 128},
                           .adam = {.lr = 2e-3, .betas = {0, 0.99}},
                           .batch = 64,
                           .grows = true,
                           .first_size = 8,
                           .mixing = 0.9,
                           .gamma = [](int64_t, int64_t) { return 10.0; },
                           .make = make,
                           .step = step};

}  // namespace gradus::examples
