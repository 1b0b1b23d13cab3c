// StyleGAN's networks against the same networks in PyTorch (stylegan.py wrote stylegan.safetensors), in the paper's
// form and in mmgeneration's: outputs and gradients by name of the case. The outputs of the cases "path" and "r1" are
// themselves made of gradients. golden_layers.h has the tolerances.
#include "gradus/autograd/functional.h"
#include "gradus/models/models.h"
#include "gradus/tests/nn/layers/golden_layers.h"
#include "gradus/train/gan/gan.h"

namespace gradus::golden {
namespace {

using namespace models;

StyleGANGeneratorOptions generator(int64_t size, bool of_mmgen) {
  const StyleGANGeneratorOptions o = {
      .size = size, .latent = 3, .style = 4, .mapping_layers = 2, .channel_base = 8, .channel_max = 4};
  return of_mmgen ? mmgen(o) : o;
}
StyleGANDiscriminatorOptions discriminator(int64_t size, bool of_mmgen, int64_t group_size = 4) {
  const StyleGANDiscriminatorOptions o = {
      .size = size, .channel_base = 8, .channel_max = 4, .group_size = group_size};
  return of_mmgen ? mmgen(o) : o;
}

using Gen = StyleGANGenerator;
using Disc = StyleGANDiscriminator;

// The inputs are styles and planes of noise.
GoldenLayer synthesis(const std::string& name, StyleGANGeneratorOptions options, Scale scale) {
  return golden<Gen>(name, options, [scale](Gen& gen, X x) {
    return gen.synthesis(x[0], scale, {.planes = {x.begin() + 1, x.end()}});
  });
}
GoldenLayer at_scale(const std::string& name, StyleGANDiscriminatorOptions options, Scale scale) {
  return golden<Disc>(name, options, [scale](Disc& disc, X x) { return disc(x[0], scale); });
}

// The squared length of the gradient of sum(image y) for the styles. The inputs are z, y and planes of noise.
Tensor path(Gen& gen, X x) {
  const Tensor ws = gen.mapping(x[0]);
  const std::vector<Tensor> noise(x.begin() + 2, x.end());
  const Tensor image = gen.synthesis(ws, {.size = 8, .fade = 0.25}, {.planes = noise});
  return sum(square(autograd::grad({sum(image * x[1])}, {ws})[0]));
}
Tensor r1(Disc& disc, X x) {
  return gan::r1([&](const Tensor& images) { return disc(images, {.size = 8, .fade = 0.7}); }, x[0]);
}

std::vector<GoldenLayer> of_form(const std::string& form, bool of_mmgen) {
  const std::string gen = "StyleGANGenerator" + form, disc = "StyleGANDiscriminator" + form;
  const Scale scales[] = {{.size = 4}, {.size = 8, .fade = 0.25}, {.size = 16, .fade = 0.7}};
  std::vector<GoldenLayer> networks = {
      golden<Gen>(gen + "/mapping", generator(8, of_mmgen),
                  [](Gen& net, X x) {
                    return std::vector<Tensor>{net.mapping(x[0]), net.mapping(x[0], {.truncation = 0.7}),
                                               net.mapping(x[0], {.truncation = -0.5, .cutoff = 1})};
                  }),
      golden<Gen>(gen + "/noise", generator(8, of_mmgen),
                  [](Gen& net, X x) {
                    return std::vector<Tensor>{
                        net.synthesis(x[0], {.size = 8}, {.mode = nn::NoiseMode::kFixed}),
                        net.synthesis(x[0], {.size = 4}, {.mode = nn::NoiseMode::kNone})};
                  }),
      golden<Gen>(gen + "/path", generator(8, of_mmgen), path),
      synthesis(gen + "/4/1", generator(4, of_mmgen), scales[0]),
      synthesis(gen + "/8/0.25", generator(16, of_mmgen), scales[1]),
      synthesis(gen + "/16/0.7", generator(16, of_mmgen), scales[2]),
      at_scale(disc + "/4/1", discriminator(4, of_mmgen), scales[0]),
      at_scale(disc + "/8/0.25", discriminator(16, of_mmgen), scales[1]),
      at_scale(disc + "/16/0.7", discriminator(16, of_mmgen), scales[2]),
      golden<Disc>(disc + "/r1", discriminator(8, of_mmgen, 2), r1)};
  // In f32, as in networks_test.cc, some 40 layers; in the second order twice as many.
  for (GoldenLayer& network : networks) network.single = 8e-6;
  return networks;
}

std::vector<GoldenLayer> both_forms() {
  std::vector<GoldenLayer> networks = of_form("", false);
  for (GoldenLayer& network : of_form("/mmgen", true)) networks.push_back(std::move(network));
  return networks;
}

}  // namespace

static const bool added = add_golden_layers("tests/golden/gan/stylegan.safetensors", both_forms());

}  // namespace gradus::golden
