// DCGAN as in PyTorch's example: the discriminator and the generator step on the same generated images.
// Source: Radford et al., "Unsupervised representation learning with deep convolutional generative
// adversarial networks", ICLR 2016; pytorch/examples, dcgan/main.py.
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

void step(GanStep& s, Trainer& t) {
  // Records the generator's forward, and pauses that recording during the discriminator's step.
  Recording gen_recording = s.trains_gen ? t.gen.record() : Recording();
  const Tensor fake = t.generate(s.fake);
  if (s.trains_gen) gen_recording.pause();
  {
    Recording disc_recording = t.disc.record();
    const auto [real_scores, fake_scores] = t.discriminate(s, detach(fake));
    t.disc.update(s, disc_recording, s.log("loss/d", gan::vanilla_d(real_scores, fake_scores)));
    s.log("d/real", mean(sigmoid(detach(real_scores))));
    s.log("d/fake", mean(sigmoid(detach(fake_scores))));
  }
  if (!s.trains_gen) return;
  gen_recording.resume();
  t.gen.update(s, gen_recording, s.log("loss/g", gan::vanilla_g(t.discriminate(fake, s.fake.labels))));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  return networks_of<models::DCGANGenerator, models::DCGANDiscriminator>(
      {.size = o.size, .channels = o.channels, .width = o.width, .latent = o.latent, .classes = o.classes},
      {.size = o.size,
       .channels = o.channels,
       .width = o.disc_width ? o.disc_width : o.width,
       .classes = o.classes},
      o.size);
}

}  // namespace

const Recipe kDcgan = {.name = "dcgan",
                       .networks = {.model = "dcgan", .size = 64, .width = 64, .latent = 100},
                       .adam = {.lr = 2e-4, .betas = {0.5, 0.999}},
                       .takes_labels = true,
                       .reuses_images = true,
                       .make = make,
                       .step = step};

}  // namespace gradus::examples
