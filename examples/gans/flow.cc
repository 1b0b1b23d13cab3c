// Flow matching: one network, the velocity, takes the place of the generator; there is no discriminator. A latent is
// an image of noise, which the velocity's differential equation moves to a generated image.
// Source: Lipman et al., "Flow matching for generative modeling", ICLR 2023.
#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {
namespace {

class FlowNetworks final : public Networks {
 public:
  explicit FlowNetworks(const NetworkOptions& o)
      : classes_(o.classes),
        velocity_{this,
                  "gen",
                  {.size = o.size,
                   .channels = o.channels,
                   .width = o.width,
                   .multipliers = {1, 2},
                   .classes = o.classes}} {
    gen = &velocity_;
    scale.size = o.size;
  }

  Tensor generate(const Latents& from) override {
    const auto& o = velocity_.options();
    const auto v = [&](const Tensor& x, const Tensor& t) { return velocity_(x, t, from.labels); };
    return flow::sample(v, reshape(from.z, {from.z.size(0), o.channels, o.size, o.size}), {.steps = 10});
  }
  Tensor discriminate(const Tensor&, const Tensor&) override {
    throw StateError("gan", "a flow has no discriminator");
  }
  Tensor loss(const GanStep& s) {
    const Tensor labels =
        s.dropped.defined() ? flow::drop_labels(s.real_labels, s.dropped, classes_) : Tensor();
    const auto v = [&](const Tensor& x, const Tensor& t) { return velocity_(x, t, labels); };
    return flow::matching_loss(v, s.real, reshape(s.fake.z, s.real.shape()), s.times);
  }

 private:
  int64_t classes_;
  models::VelocityUNet velocity_;
};

void step(GanStep& s, Trainer& t) {
  Recording recording = t.gen.record();
  t.gen.update(s, recording, s.log("loss", static_cast<FlowNetworks&>(t.networks()).loss(s)));
}

std::unique_ptr<Networks> make(const NetworkOptions& o) { return std::make_unique<FlowNetworks>(o); }

}  // namespace

const Recipe kFlow = {.name = "flow",
                      .networks = {.model = "flow", .size = 32, .width = 48},
                      .adam = {.lr = 1e-3, .betas = {0.9, 0.99}},
                      .batch = 64,
                      .takes_labels = true,
                      .reuses_images = true,
                      .is_flow = true,
                      .make = make,
                      .step = step};

}  // namespace gradus::examples
