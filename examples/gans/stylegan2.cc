// StyleGAN2: the logistic loss, with R1 every 16 steps and the path length penalty every 4, in steps of their own.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020; gamma and the learning
// rate: "Training generative adversarial networks with limited data", NeurIPS 2020.
#include "gradus/examples/gans/style_networks.h"
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

constexpr int64_t kDiscPenaltyEvery = 16, kGenPenaltyEvery = 4;
constexpr double kPathLengthWeight = 2;

void step_of_discriminator(GanStep& s, Trainer& t) {
  const Tensor fake = t.generate(s.fake);
  {
    Recording recording = t.disc.record();
    const auto [real_scores, fake_scores] = t.discriminate(s, fake);
    t.disc.update(s, recording, s.log("loss/d", gan::logistic_d(real_scores, fake_scores)));
    s.log("d/real", mean(sigmoid(detach(real_scores))));
    s.log("d/fake", mean(sigmoid(detach(fake_scores))));
  }
  if (!s.penalizes_disc) return;
  Recording recording = t.disc.record();
  const auto disc = [&](const Tensor& x) { return t.discriminate(x, s.real_labels); };
  t.disc.update(s, recording, kDiscPenaltyEvery * t.gamma() / 2 * s.log("penalty", gan::r1(disc, s.real)));
}

void step_of_generator(GanStep& s, Trainer& t) {
  {
    Recording recording = t.gen.record();
    const Tensor scores = t.discriminate(t.generate(s.gen_fake), s.gen_fake.labels);
    t.gen.update(s, recording, s.log("loss/g", gan::logistic_g(scores)));
  }
  if (!s.penalizes_gen) return;
  Recording recording = t.gen.record();
  auto& net = static_cast<StyleNetworks&>(t.networks());
  const Tensor ws = net.styles(s.path), images = net.synthesize(ws, s.path.noise);
  const Tensor penalty = s.log("path_length", t.path_length()(images, ws, s.path_noise));
  t.gen.update(s, recording, kGenPenaltyEvery * kPathLengthWeight * penalty);
}

void step(GanStep& s, Trainer& t) {
  step_of_discriminator(s, t);
  if (s.trains_gen) step_of_generator(s, t);
}

std::unique_ptr<Networks> make(const NetworkOptions& o) {
  const int64_t base = o.width * o.size;  // so that the largest images have o.width channels
  return std::make_unique<StyleNetworksOf<models::StyleGAN2Generator, models::StyleGAN2Discriminator>>(
      models::StyleGAN2GeneratorOptions{.size = o.size,
                                        .channels = o.channels,
                                        .latent = o.latent,
                                        .style = o.latent,
                                        .classes = o.classes,
                                        .mapping_layers = 2,
                                        .channel_base = base,
                                        .channel_max = 128},
      models::StyleGAN2DiscriminatorOptions{.size = o.size,
                                            .channels = o.channels,
                                            .classes = o.classes,
                                            .channel_base = base,
                                            .channel_max = 128,
                                            .mapping_layers = 2},
      o.size);
}

}  // namespace

const Recipe kStyleGan2 = {
    .name = "stylegan2",
    .networks = {.model = "stylegan2", .size = 32, .width = 16, .latent = 128},
    .adam = {.lr = 2.5e-3, .betas = {0, 0.99}},
    .batch = 64,
    .takes_labels = true,
    .mixing = 0.9,
    .disc_penalty_every = kDiscPenaltyEvery,
    .gen_penalty_every = kGenPenaltyEvery,
    .gamma = [](int64_t size, int64_t batch) { return 0.0002 * double(size * size) / double(batch); },
    .make = make,
    .step = step};

}  // namespace gradus::examples
