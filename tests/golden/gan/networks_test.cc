// GAN networks against the same networks in PyTorch (networks.py wrote networks.safetensors): outputs and
// gradients, by name of the case. golden_layers.h has the tolerances.
#include "gradus/models/models.h"
#include "gradus/tests/nn/layers/golden_layers.h"

namespace gradus::golden {
namespace {

using namespace models;

// A case whose second input are labels.
template <class L> GoldenLayer with_labels(std::string name, typename L::Options options) {
  return golden<L>(std::move(name), options, [](L& net, X x) { return net(x[0], x[1]); });
}

const PGGANGeneratorOptions kGenerator = {.size = 16, .latent = 5, .channel_base = 16, .channel_max = 6};
const PGGANDiscriminatorOptions kDiscriminator = {.size = 16, .channel_base = 16, .channel_max = 6};

template <class L> GoldenLayer at_scale(std::string name, typename L::Options options, Scale scale) {
  return golden<L>(std::move(name), options, [scale](L& net, X x) { return net(x[0], scale); });
}

PGGANGeneratorOptions with_classes(PGGANGeneratorOptions o) {
  o.classes = 3;
  return o;
}
PGGANDiscriminatorOptions with_classes(PGGANDiscriminatorOptions o) {
  o.classes = 2;
  o.group_size = 2;
  return o;
}
DCGANGeneratorOptions with_width(DCGANGeneratorOptions o, int64_t width) {
  o.width = width;
  return o;
}
DCGANDiscriminatorOptions with_width(DCGANDiscriminatorOptions o, int64_t width) {
  o.width = width;
  return o;
}

GoldenLayer generator_with_labels(std::string name, PGGANGeneratorOptions o) {
  return golden<PGGANGenerator>(std::move(name), with_classes(o), [](PGGANGenerator& net, X x) {
    return net(x[0], x[1], {.size = 8, .fade = 0.5});
  });
}

// A relative tolerance of 4e-6 in f32: some 40 layers, forward and backward, round by 6e-8 each.
std::vector<GoldenLayer> deep(std::vector<GoldenLayer> networks) {
  for (GoldenLayer& n : networks) n.single = 4e-6;
  return networks;
}

}  // namespace

static const bool added = add_golden_layers(
    "tests/golden/gan/networks.safetensors",
    deep({
        golden<DCGANGenerator>("DCGANGenerator", {.size = 16, .width = 2, .latent = 5}),
        golden<DCGANGenerator>("DCGANGenerator/8", {.size = 8, .channels = 1, .width = 3, .latent = 4}),
        golden<DCGANGenerator>(
            "DCGANGenerator/mmgen",
            with_width(mmgen(DCGANGeneratorOptions{.size = 16, .channels = 1, .latent = 5}), 2)),
        with_labels<DCGANGenerator>("DCGANGenerator/labels",
                                    {.size = 16, .channels = 1, .width = 2, .latent = 5, .classes = 3}),
        golden<DCGANDiscriminator>("DCGANDiscriminator", {.size = 16, .width = 2}),
        golden<DCGANDiscriminator>(
            "DCGANDiscriminator/mmgen",
            with_width(mmgen(DCGANDiscriminatorOptions{.size = 32, .channels = 1, .outputs = 3}), 2)),
        with_labels<DCGANDiscriminator>("DCGANDiscriminator/labels",
                                        {.size = 16, .channels = 1, .width = 2, .classes = 3}),

        golden<LSGANGenerator>("LSGANGenerator", {.size = 32, .channels = 1, .width = 4, .latent = 3}),
        golden<LSGANGenerator>("LSGANGenerator/64", {.size = 64, .channels = 1, .width = 4, .latent = 2}),
        golden<LSGANDiscriminator>("LSGANDiscriminator", {.size = 32, .channels = 2, .width = 2}),
        golden<LSGANDiscriminator>("LSGANDiscriminator/64", {.size = 64, .channels = 1, .width = 1}),

        golden<WGANGPGenerator>("WGANGPGenerator",
                                {.size = 16, .latent = 5, .channel_base = 32, .channel_max = 4}),
        golden<WGANGPGenerator>(
            "WGANGPGenerator/8",
            {.size = 8, .channels = 1, .latent = 3, .channel_base = 16, .channel_max = 8}),
        golden<WGANGPDiscriminator>("WGANGPDiscriminator",
                                    {.size = 16, .channel_base = 32, .channel_max = 4}),
        golden<WGANGPDiscriminator>("WGANGPDiscriminator/LN2d",
                                    {.size = 8,
                                     .channels = 1,
                                     .channel_base = 32,
                                     .channel_max = 4,
                                     .norm = WGANGPDiscriminatorOptions::Norm::kLayer}),
        golden<WGANGPSmallGenerator>("WGANGPSmallGenerator", {.latent = 5, .width = 2}),
        golden<WGANGPSmallGenerator>(
            "WGANGPSmallGenerator/cifar",
            {.size = 32, .channels = 3, .latent = 3, .width = 1, .batch_norm = true, .sigmoid = false}),
        golden<WGANGPSmallDiscriminator>("WGANGPSmallDiscriminator", {.width = 1}),
        golden<WGANGPSmallDiscriminator>("WGANGPSmallDiscriminator/cifar",
                                         {.size = 32, .channels = 3, .width = 1}),

        at_scale<PGGANGenerator>("PGGANGenerator/4/1", kGenerator, {.size = 4}),
        at_scale<PGGANGenerator>("PGGANGenerator/8/0.25", kGenerator, {.size = 8, .fade = 0.25}),
        at_scale<PGGANGenerator>("PGGANGenerator/8/1", kGenerator, {.size = 8}),
        at_scale<PGGANGenerator>("PGGANGenerator/16/0.7", kGenerator, {.size = 16, .fade = 0.7}),
        golden<PGGANGenerator>("PGGANGenerator/16/1", kGenerator),
        generator_with_labels("PGGANGenerator/labels", kGenerator),
        at_scale<PGGANGenerator>("PGGANGenerator/mmgen/4/1", mmgen(kGenerator), {.size = 4}),
        at_scale<PGGANGenerator>("PGGANGenerator/mmgen/8/0.25", mmgen(kGenerator), {.size = 8, .fade = 0.25}),
        at_scale<PGGANGenerator>("PGGANGenerator/mmgen/16/0.7", mmgen(kGenerator), {.size = 16, .fade = 0.7}),
        generator_with_labels("PGGANGenerator/mmgen/labels", mmgen(kGenerator)),
        golden<PGGANGenerator>("PGGANGenerator/decay", {.size = 16,
                                                        .channels = 1,
                                                        .latent = 4,
                                                        .channel_base = 16,
                                                        .channel_decay = 0.5,
                                                        .channel_max = 9}),

        at_scale<PGGANDiscriminator>("PGGANDiscriminator/4/1", kDiscriminator, {.size = 4}),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/8/0.25", kDiscriminator, {.size = 8, .fade = 0.25}),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/8/1", kDiscriminator, {.size = 8}),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/16/0.7", kDiscriminator, {.size = 16, .fade = 0.7}),
        golden<PGGANDiscriminator>("PGGANDiscriminator/16/1", kDiscriminator),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/classes", with_classes(kDiscriminator), {.size = 8}),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/mmgen/4/1", mmgen(kDiscriminator), {.size = 4}),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/mmgen/8/0.25", mmgen(kDiscriminator),
                                     {.size = 8, .fade = 0.25}),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/mmgen/16/0.7", mmgen(kDiscriminator),
                                     {.size = 16, .fade = 0.7}),
        at_scale<PGGANDiscriminator>("PGGANDiscriminator/mmgen/classes", mmgen(with_classes(kDiscriminator)),
                                     {.size = 8}),
        golden<PGGANDiscriminator>("PGGANDiscriminator/decay", {.size = 16,
                                                                .channels = 1,
                                                                .channel_base = 16,
                                                                .channel_decay = 0.5,
                                                                .channel_max = 9,
                                                                .group_size = 2}),
    }));

}  // namespace gradus::golden
