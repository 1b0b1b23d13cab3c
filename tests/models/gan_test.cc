// Generators and discriminators of GANs: published numbers of parameters, names, initial values, the image
// sizes of PGGAN and StyleGAN and fades between them, StyleGAN's noise and truncation, errors.
// tests/golden/gan compares results and gradients with PyTorch's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/tests/support/error.h"

namespace gradus::models {
namespace {

// Returns a network's number of parameters; the meta device allocates none of them.
template <class Net> int64_t parameters(typename Net::Options options) {
  Context context = Context::current().snapshot();
  context.device = {DeviceType::kMeta};
  const ContextScope scope(context);
  return Net(options).num_parameters();
}

std::vector<std::string> names_of(const nn::Module& net) {
  std::vector<std::string> names;
  for (const auto& [name, t] : net.state_dict()) names.push_back(name);
  return names;
}

double largest_difference(const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); }

// The published sizes: pytorch/examples, open-mmlab/mmgeneration, and the tables of the papers.
TEST(GanNetworks, HaveThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameters<DCGANGenerator>({}), 3'576'704);
  EXPECT_EQ(parameters<DCGANDiscriminator>({}), 2'765'568);
  EXPECT_EQ(parameters<DCGANGenerator>({.channels = 1}), 3'574'656);
  EXPECT_EQ(parameters<DCGANDiscriminator>({.channels = 1}), 2'763'520);
  EXPECT_EQ(parameters<DCGANGenerator>({.size = 32, .channels = 1}), 1'066'880);
  EXPECT_EQ(parameters<DCGANGenerator>({.size = 32, .channels = 1, .width = 32}), 369'600);
  EXPECT_EQ(parameters<DCGANDiscriminator>({.size = 32, .channels = 1}), 661'248);
  EXPECT_EQ(parameters<DCGANDiscriminator>({.size = 32, .channels = 1, .width = 32}), 166'784);
  EXPECT_EQ(parameters<DCGANGenerator>(mmgen(DCGANGeneratorOptions{})), 12'658'435);
  EXPECT_EQ(parameters<DCGANDiscriminator>(mmgen(DCGANDiscriminatorOptions{})), 11'036'289);
  EXPECT_EQ(parameters<DCGANGenerator>(mmgen(DCGANGeneratorOptions{.size = 128})), 12'786'563);
  EXPECT_EQ(parameters<DCGANDiscriminator>(mmgen(DCGANDiscriminatorOptions{.size = 128, .outputs = 100})),
            47'855'332);

  EXPECT_EQ(parameters<LSGANGenerator>({.size = 128}), 19'526'211);
  EXPECT_EQ(parameters<LSGANGenerator>({.size = 64}), 18'345'539);
  EXPECT_EQ(parameters<LSGANDiscriminator>({.size = 128}), 4'340'225);
  EXPECT_EQ(parameters<LSGANDiscriminator>({.size = 64}), 1'046'017);

  const int64_t wgan_gp[][3] = {
      {128, 10'485'667, 11'272'545}, {64, 10'457'923, 11'244'737}, {32, 10'347'139, 11'133'825}};
  for (const auto& [size, gen, disc] : wgan_gp) {
    EXPECT_EQ(parameters<WGANGPGenerator>({.size = size}), gen) << size;
    EXPECT_EQ(parameters<WGANGPDiscriminator>({.size = size}), disc) << size;
  }
  const int64_t pggan[][3] = {
      {1024, 23'079'115, 23'087'249}, {128, 22'933'394, 22'941'313}, {32, 20'719'628, 20'726'785}};
  for (const auto& [size, gen, disc] : pggan) {
    EXPECT_EQ(parameters<PGGANGenerator>({.size = size}), gen) << size;
    EXPECT_EQ(parameters<PGGANDiscriminator>({.size = size}), disc) << size;
  }

  // 32x32 pixels, CIFAR-10's classes; R3GAN's default options are the paper's for CIFAR-10.
  EXPECT_EQ(parameters<SNGANGenerator>({.classes = 10}), 4'304'387);
  EXPECT_EQ(parameters<SNGANDiscriminator>({.classes = 10}), 1'055'105);
  EXPECT_EQ(parameters<SNGANGenerator>({}), 4'276'739);
  EXPECT_EQ(parameters<SNGANDiscriminator>({}), 1'053'825);
  EXPECT_EQ(parameters<SNGANDiscriminator>({.classes = 10, .init = SNGANInit::kPaper}), 1'055'104);
  EXPECT_EQ(parameters<R3GANGenerator>({}), 20'732'160);
  EXPECT_EQ(parameters<R3GANDiscriminator>({}), 20'683'776);
  EXPECT_EQ(parameters<R3GANGenerator>({.classes = 10}), 20'781'952);
  EXPECT_EQ(parameters<R3GANDiscriminator>({.classes = 10}), 21'280'512);
  const std::vector<int64_t> ffhq = {768, 768, 768, 768, 384, 192, 96};  // 256x256 pixels
  EXPECT_EQ(parameters<R3GANGenerator>({.widths = ffhq}), 23'057'952);
  EXPECT_EQ(parameters<R3GANDiscriminator>({.widths = ffhq}), 23'009'568);
}

TEST(GanNetworks, StyleganHasThePublishedNumbersOfParameters) {
  const int64_t stylegan[][3] = {
      {1024, 26'219'627, 23'087'249}, {256, 26'086'229, 23'052'353}, {32, 22'841'356, 20'726'785}};
  for (const auto& [size, gen, disc] : stylegan) {
    EXPECT_EQ(parameters<StyleGANGenerator>({.size = size}), gen) << size;
    EXPECT_EQ(parameters<StyleGANDiscriminator>({.size = size}), disc) << size;
  }
}

TEST(GanNetworks, Stylegan2HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameters<StyleGAN2Generator>({}), 30'370'060);
  EXPECT_EQ(parameters<StyleGAN2Discriminator>({}), 29'012'513);
  EXPECT_EQ(parameters<StyleGAN2Generator>({.size = 256}), 30'034'338);
  EXPECT_EQ(parameters<StyleGAN2Discriminator>({.size = 256}), 28'864'129);
  EXPECT_EQ(parameters<StyleGAN2Generator>({.size = 256, .channel_base = 16384}), 24'767'458);
  EXPECT_EQ(parameters<StyleGAN2Discriminator>({.size = 256, .channel_base = 16384}), 24'001'089);
  EXPECT_EQ(parameters<StyleGAN2Generator>({.size = 32,
                                            .latent = 128,
                                            .style = 128,
                                            .mapping_layers = 2,
                                            .channel_base = 4096,
                                            .channel_max = 128}),
            1'251'347);
  EXPECT_EQ(parameters<StyleGAN2Discriminator>({.size = 32, .channel_base = 4096, .channel_max = 128}),
            1'346'305);
}

TEST(GanNetworks, HaveTheReferencesNames) {
  using testing::ElementsAre;
  EXPECT_THAT(names_of(DCGANGenerator({.size = 8, .width = 1, .latent = 1})),
              ElementsAre("main.0.weight", "main.1.weight", "main.1.bias", "main.1.running_mean",
                          "main.1.running_var", "main.1.num_batches_tracked", "main.3.weight"));
  EXPECT_THAT(names_of(WGANGPDiscriminator({.size = 8, .channel_base = 16})),
              ElementsAre("from_rgb.conv.weight", "from_rgb.conv.bias", "conv_blocks.0.conv.weight",
                          "conv_blocks.0.conv.bias", "conv_blocks.0.GN.weight", "conv_blocks.0.GN.bias",
                          "conv_blocks.1.conv.weight", "conv_blocks.1.conv.bias", "conv_blocks.1.GN.weight",
                          "conv_blocks.1.GN.bias", "decision.conv.conv.weight", "decision.conv.conv.bias",
                          "decision.conv.GN.weight", "decision.conv.GN.bias", "decision.linear.weight",
                          "decision.linear.bias"));
  EXPECT_THAT(names_of(PGGANGenerator({.size = 8, .latent = 1, .channel_base = 8})),
              testing::UnorderedElementsAre("noise2feat.bias", "noise2feat.linear.weight_orig",
                                            "torgb_layers.0.conv.bias", "torgb_layers.0.conv.weight_orig",
                                            "torgb_layers.1.conv.bias", "torgb_layers.1.conv.weight_orig",
                                            "conv_blocks.0.conv.bias", "conv_blocks.0.conv.weight_orig",
                                            "conv_blocks.1.conv.bias", "conv_blocks.1.conv.weight_orig",
                                            "conv_blocks.2.conv.bias", "conv_blocks.2.conv.weight_orig"));

  const SNGANDiscriminator sngan({.size = 16, .classes = 2, .width = 2});
  for (const char* name : {"from_rgb.shortcut.conv.weight_orig", "conv_blocks.1.conv_2.conv.bias",
                           "decision.weight_orig", "proj_y.weight_orig"})
    EXPECT_NO_THROW(sngan.parameter(name)) << name;
  EXPECT_THAT(
      names_of(R3GANGenerator({.widths = {2, 1}, .latent = 1, .classes = 2, .blocks = 1, .group_width = 1})),
      ElementsAre("MainLayers.0.Layers.0.Basis", "MainLayers.0.Layers.0.LinearLayer.weight",
                  "MainLayers.0.Layers.1.LinearLayer1.Layer.weight",
                  "MainLayers.0.Layers.1.LinearLayer2.Layer.weight",
                  "MainLayers.0.Layers.1.LinearLayer3.Layer.weight",
                  "MainLayers.0.Layers.1.NonLinearity1.Bias", "MainLayers.0.Layers.1.NonLinearity2.Bias",
                  "MainLayers.1.Layers.0.LinearLayer.Layer.weight",
                  "MainLayers.1.Layers.1.LinearLayer1.Layer.weight",
                  "MainLayers.1.Layers.1.LinearLayer2.Layer.weight",
                  "MainLayers.1.Layers.1.LinearLayer3.Layer.weight",
                  "MainLayers.1.Layers.1.NonLinearity1.Bias", "MainLayers.1.Layers.1.NonLinearity2.Bias",
                  "AggregationLayer.Layer.weight", "EmbeddingLayer.weight"));
}

// Mean and standard deviation of a tensor.
std::pair<double, double> moments(const Tensor& t) {
  const std::vector<double> v = t.to_vector<double>();
  double mean = 0, square = 0;
  for (double x : v) mean += x / double(v.size());
  for (double x : v) square += (x - mean) * (x - mean) / double(v.size());
  return {mean, std::sqrt(square)};
}

// The standard error of a sample deviation of n numbers is about 1 / sqrt(2 n): five of these are allowed.
void expect_deviation(const nn::Module& net, const std::string& name, double expected) {
  const Tensor t = net.parameter(name);
  const double off = 5 / std::sqrt(2.0 * double(t.numel()));
  EXPECT_NEAR(moments(t).second / expected, 1, off) << name;
}

TEST(GanNetworks, StartAsTheirSourcesSay) {
  manual_seed(3);
  const DCGANGenerator dcgan({.size = 16});
  expect_deviation(dcgan, "main.0.weight", 0.02);
  expect_deviation(dcgan, "main.1.weight", 0.02);
  EXPECT_NEAR(moments(dcgan.parameter("main.1.weight")).first, 1, 0.02);
  const DCGANDiscriminator disc(mmgen(DCGANDiscriminatorOptions{.size = 16}));
  expect_deviation(disc, "main.2.weight", 0.02);
  expect_deviation(disc, "main.3.weight", 1);
  EXPECT_EQ(moments(disc.parameter("main.0.bias")).second, 0);

  // Kaiming initialization by PyTorch's fan_out, the product of all dims but the second.
  const LSGANGenerator lsgan({.size = 32, .width = 64, .latent = 8});
  expect_deviation(lsgan, "conv_blocks.0.conv.weight", std::sqrt(2.0 / (64 * 9)));
  const WGANGPDiscriminator wgan({.size = 8, .channel_base = 256});
  expect_deviation(wgan, "conv_blocks.1.conv.weight", std::sqrt(2 / (1 + 0.04) / (64 * 9)));
  expect_deviation(wgan, "decision.linear.weight", 1);
  const PGGANGenerator pggan({.size = 8, .channel_base = 64});
  for (const auto& [name, p] : pggan.named_parameters()) {
    if (name.ends_with("bias"))
      EXPECT_EQ(max(abs(p)).item<double>(), 0) << name;
    else
      expect_deviation(pggan, name, 1);
  }

  const SNGANGenerator studio({.size = 8, .latent = 16, .classes = 4, .width = 8});
  const Tensor scale = studio.parameter("conv_blocks.0.norm_1.weight_embedding.weight");  // orthonormal rows
  EXPECT_LT(largest_difference(matmul(scale, transpose(scale, 0, 1)), eye(4)), 1e-5);
  const SNGANGenerator paper({.size = 8, .latent = 16, .classes = 4, .width = 32, .init = SNGANInit::kPaper});
  expect_deviation(paper, "conv_blocks.0.conv_1.conv.weight", std::sqrt(2.0 * 2 / (2 * 32 * 9)));
  expect_deviation(paper, "conv_blocks.0.shortcut.conv.weight", std::sqrt(2.0 / (2 * 32)));
  EXPECT_EQ(min(paper.parameter("conv_blocks.0.norm_1.weight_embedding.weight")).item<double>(), 1);

  // R3GAN's two stages of two blocks: variance 2 / (1 + 0.04) / fan_in / sqrt(4 blocks).
  const R3GANDiscriminator r3gan({.widths = {32, 32}, .classes = 8, .group_width = 16});
  expect_deviation(r3gan, "MainLayers.0.Layers.0.LinearLayer1.Layer.weight",
                   std::sqrt(2 / 1.04 / 32 / std::sqrt(4)));
  expect_deviation(r3gan, "MainLayers.0.Layers.0.LinearLayer2.Layer.weight",
                   std::sqrt(2 / 1.04 / (16 * 9) / std::sqrt(4)));
  EXPECT_EQ(moments(r3gan.parameter("MainLayers.0.Layers.0.LinearLayer3.Layer.weight")).second, 0);
  expect_deviation(r3gan, "MainLayers.1.Layers.2.Basis.weight", 0.25);
  expect_deviation(r3gan, "EmbeddingLayer.weight", std::sqrt(1.0 / (32 * 8)));
}

TEST(Pggan, AFadeBeginsAsTheHalfSizeAndEndsAsTheFullOne) {
  manual_seed(1);
  PGGANGenerator gen({.size = 16, .latent = 4, .channel_base = 32});
  PGGANDiscriminator disc({.size = 16, .channel_base = 32});
  const Tensor z = randn({4, 4});
  const Tensor begun = gen(z, {.size = 16, .fade = 0}), half = gen(z, {.size = 8});
  EXPECT_EQ(largest_difference(begun, interpolate(half, {.scale_factor = {2}})), 0);
  EXPECT_EQ(largest_difference(gen(z, {.size = 16, .fade = 1}), gen(z)), 0);
  EXPECT_GT(largest_difference(begun, gen(z)), 0.01);

  const Tensor x = randn({4, 3, 16, 16});
  EXPECT_LT(largest_difference(disc(x, {.size = 16, .fade = 0}), disc(avg_pool2d(x, 2), {.size = 8})), 1e-6);
  EXPECT_EQ(largest_difference(disc(x, {.size = 16}), disc(x)), 0);
}

TEST(Pggan, BlocksOfLargerSizesGetNoGradient) {
  PGGANGenerator gen({.size = 16, .latent = 4, .channel_base = 32});
  GradManager gm;
  gm.attach(gen.parameters());
  {
    auto recording = gm.record();
    gm.backward(sum(gen(randn({2, 4}), {.size = 8, .fade = 0.5})));
  }
  for (const auto& [name, p] : gen.named_parameters()) {
    const bool larger = name.starts_with("torgb_layers.2.") || name.starts_with("conv_blocks.3.") ||
                        name.starts_with("conv_blocks.4.");
    EXPECT_EQ(p.grad().defined(), !larger) << name;
  }
}

const StyleGANGeneratorOptions kStyleGAN = {
    .size = 8, .latent = 3, .style = 4, .mapping_layers = 1, .channel_base = 8};

TEST(Stylegan, HasTheNamesOfMmgeneration) {
  std::vector<std::string> expected = {"style_mapping.1.bias",      "style_mapping.1.linear.weight_orig",
                                       "convs.0.conv1.input",       "convs.1.conv1.0.conv.weight_orig",
                                       "convs.1.conv1.0.conv.bias", "to_rgbs.0.conv.weight_orig",
                                       "to_rgbs.0.conv.bias",       "to_rgbs.1.conv.weight_orig",
                                       "to_rgbs.1.conv.bias",       "injected_noise_0",
                                       "injected_noise_1",          "injected_noise_2",
                                       "injected_noise_3"};
  for (const char* block : {"convs.0.", "convs.1."})
    for (const char* name : {"noise_injector1.weight", "noise_injector2.weight", "adain1.affine.weight_orig",
                             "adain1.affine.bias", "adain2.affine.weight_orig", "adain2.affine.bias",
                             "conv2.conv.weight_orig", "conv2.conv.bias"})
      expected.push_back(concat(block, name));
  expected.push_back("w_avg");  // Gradus' own
  EXPECT_THAT(names_of(StyleGANGenerator(mmgen(kStyleGAN))), testing::UnorderedElementsAreArray(expected));
  expected.push_back("convs.0.conv1.bias");  // the paper's
  EXPECT_THAT(names_of(StyleGANGenerator(kStyleGAN)), testing::UnorderedElementsAreArray(expected));
  EXPECT_THAT(names_of(StyleGANDiscriminator({.size = 8, .channel_base = 8})),
              testing::UnorderedElementsAre(
                  "convs.0.0.conv.bias", "convs.0.0.conv.weight_orig", "convs.0.2.conv.bias",
                  "convs.0.2.conv.weight_orig", "convs.1.0.conv.bias", "convs.1.0.conv.weight_orig",
                  "convs.1.1.conv.bias", "convs.1.1.conv.weight_orig", "from_rgb.0.conv.bias",
                  "from_rgb.0.conv.weight_orig", "from_rgb.1.conv.bias", "from_rgb.1.conv.weight_orig",
                  "final_linear.0.bias", "final_linear.0.linear.weight_orig"));
}

TEST(Stylegan, StartsAsItsSourcesSay) {
  manual_seed(5);
  const StyleGANGeneratorOptions o = {.size = 8, .channel_base = 64};
  const StyleGANGenerator paper(o), reference(mmgen(o));
  expect_deviation(paper, "style_mapping.1.linear.weight_orig", 100);
  expect_deviation(paper, "convs.1.conv1.0.conv.weight_orig", 1);
  expect_deviation(reference, "convs.0.conv1.input", 1);
  EXPECT_EQ(moments(paper.parameter("convs.0.conv1.input")), std::pair(1.0, 0.0));
  for (const auto& [name, p] : paper.named_parameters())
    if (name.ends_with("bias") || name.find("noise_injector") != name.npos) {
      EXPECT_EQ(max(abs(p)).item<double>(), 0) << name;
    }
  const Tensor bias = reference.parameter("convs.0.adain1.affine.bias");
  EXPECT_EQ(moments(narrow(bias, 0, 0, 32)), std::pair(1.0, 0.0));
  EXPECT_EQ(moments(narrow(bias, 0, 32, 32)), std::pair(0.0, 0.0));
}

TEST(Stylegan, AFadeBeginsAsTheHalfSizeAndEndsAsTheFullOne) {
  manual_seed(1);
  StyleGANGenerator gen({.size = 16, .latent = 4, .style = 4, .channel_base = 32});
  StyleGANDiscriminator disc({.size = 16, .channel_base = 32});
  const Tensor z = randn({4, 4});  // the noise has strength 0 at first
  const Tensor begun = gen(z, {.size = 16, .fade = 0}), half = gen(z, {.size = 8});
  EXPECT_EQ(largest_difference(begun, interpolate(half, {.scale_factor = {2}})), 0);
  EXPECT_EQ(largest_difference(gen(z, {.size = 16}), gen(z)), 0);
  EXPECT_GT(largest_difference(begun, gen(z)), 0.01);

  const Tensor x = randn({4, 3, 16, 16});
  EXPECT_LT(largest_difference(disc(x, {.size = 16, .fade = 0}), disc(avg_pool2d(x, 2), {.size = 8})), 1e-6);
  EXPECT_EQ(largest_difference(disc(x, {.size = 16}), disc(x)), 0);
}

TEST(Stylegan, BlocksOfLargerSizesGetNoGradient) {
  StyleGANGenerator gen({.size = 16, .latent = 4, .style = 4, .mapping_layers = 2, .channel_base = 32});
  StyleGANDiscriminator disc({.size = 16, .channel_base = 32});
  GradManager gm;
  gm.attach(gen.parameters());
  gm.attach(disc.parameters());
  {
    auto recording = gm.record();
    const Scale scale = {.size = 8, .fade = 0.5};
    gm.backward(sum(disc(gen(randn({2, 4}), scale), scale)));
  }
  for (const auto& [name, p] : gen.named_parameters())
    EXPECT_EQ(p.grad().defined(), !name.starts_with("convs.2.") && !name.starts_with("to_rgbs.2.")) << name;
  for (const auto& [name, p] : disc.named_parameters())
    EXPECT_EQ(p.grad().defined(), !name.starts_with("convs.0.") && !name.starts_with("from_rgb.0.")) << name;
}

TEST(Stylegan, NoiseIsRandomFixedAbsentOrTheCallers) {
  manual_seed(2);
  StyleGANGenerator gen(kStyleGAN);
  for (const auto& [name, p] : gen.named_parameters())
    if (name.find("noise_injector") != name.npos) nn::init::ones_(p);
  EXPECT_EQ(gen.noise_sizes({.size = 8}), (std::vector<int64_t>{4, 4, 8, 8}));
  EXPECT_EQ(gen.noise_sizes({.size = 4}), (std::vector<int64_t>{4, 4}));
  const Tensor ws = gen.mapping(randn({2, 3}));
  const auto image = [&](nn::NoiseMode mode) { return gen.synthesis(ws, {.size = 8}, {.mode = mode}); };
  const Tensor random = image(nn::NoiseMode::kRandom), fixed = image(nn::NoiseMode::kFixed);
  EXPECT_GT(largest_difference(random, image(nn::NoiseMode::kRandom)), 0.01);
  EXPECT_EQ(largest_difference(fixed, image(nn::NoiseMode::kFixed)), 0);
  EXPECT_GT(largest_difference(fixed, image(nn::NoiseMode::kNone)), 0.01);
  std::vector<Tensor> noise;
  for (const auto& [name, b] : gen.named_buffers())
    if (name.starts_with("injected_noise_")) noise.push_back(b);
  EXPECT_EQ(largest_difference(fixed, gen.synthesis(ws, {.size = 8}, {.planes = noise})), 0);
  for (Tensor& n : noise) n = zeros_like(n);
  EXPECT_EQ(
      largest_difference(image(nn::NoiseMode::kNone), gen.synthesis(ws, {.size = 8}, {.planes = noise})), 0);
}

TEST(Stylegan, TheAverageOfStylesMovesInUpdatesAlone) {
  StyleGANGenerator gen(kStyleGAN);
  EXPECT_EQ(max(abs(gen.w_avg)).item<double>(), 0);
  gen(randn({2, 3}));
  EXPECT_EQ(max(abs(gen.w_avg)).item<double>(), 0);
  const Tensor before = gen.w_avg;
  gen.update_w_avg(full({2, 4}, 10.0));
  EXPECT_NEAR(gen.w_avg.to_vector<double>()[0], 0.05, 1e-7);
  gen.update_w_avg(cat({zeros({1, 4, 4}), full({1, 4, 4}, 20.0)}));
  EXPECT_NEAR(gen.w_avg.to_vector<double>()[3], 0.995 * 0.05 + 0.05, 1e-7);
  EXPECT_EQ(largest_difference(before, gen.w_avg), 0);  // written in place
  StyleGANGenerator reference(mmgen(kStyleGAN));
  reference.update_w_avg(full({4}, 3.0));
  EXPECT_EQ(reference.w_avg.to_vector<double>()[1], 3);
}

TEST(Stylegan, TruncationMovesTheFirstStyles) {
  manual_seed(4);
  const StyleGANGeneratorOptions o = {.size = 64, .latent = 2, .style = 3, .channel_base = 32};
  StyleGANGenerator gen(o), reference(mmgen(o));
  EXPECT_EQ(gen.num_ws(), 10);
  const Tensor z = randn({2, 2});
  // Returns how many of the styles, which begin with those that truncation moves, are half as large.
  const auto moved = [&](StyleGANGenerator& net, Truncation options) {
    const Tensor all = net.mapping(z), some = net.mapping(z, options);
    int64_t count = 0;
    while (count < 10 && largest_difference(select(some, 1, count), select(all, 1, count) * 0.5) == 0)
      ++count;
    for (int64_t i = count; i < 10; ++i)
      EXPECT_EQ(largest_difference(select(some, 1, i), select(all, 1, i)), 0) << i;
    return count;
  };
  EXPECT_EQ(moved(gen, {.truncation = 0.5}), 8);
  EXPECT_EQ(moved(gen, {.truncation = 0.5, .cutoff = 3}), 3);
  EXPECT_EQ(moved(gen, {.truncation = 0.5, .cutoff = 100}), 10);
  EXPECT_EQ(moved(reference, {.truncation = 0.5}), 10);
  EXPECT_EQ(moved(gen, {}), 0);
}

TEST(Stylegan, ReportsWhatItCannotTake) {
  StyleGANGenerator gen(kStyleGAN);
  StyleGANDiscriminator disc({.size = 8, .channel_base = 8});
  const Tensor ws = zeros({2, 4, 4});
  EXPECT_ERROR(Error, gen(zeros({2, 4})), "expected z [N,3] or [N,3,1,1], got f32[2,4]");
  EXPECT_ERROR(Error, gen(zeros({2, 3}), {.size = 16}), "a scale of at most 8 pixels, got 16");
  EXPECT_ERROR(Error, gen.mapping(zeros({2, 3}), {.truncation = 0, .cutoff = -1}), "cutoff >= 0, got -1");
  EXPECT_ERROR(Error, gen.synthesis(zeros({2, 3, 4}), {.size = 4}), "expected ws [N,4,4], got f32[2,3,4]");
  EXPECT_ERROR(Error, gen.synthesis(ws, {.size = 4}, {.planes = {zeros({1, 1, 4, 4})}}),
               "expected 2 planes of noise, got 1");
  EXPECT_ERROR(Error, gen.synthesis(ws, {.size = 4}, {.planes = {zeros({1, 1, 4, 4}), zeros({3, 1, 4, 4})}}),
               "expected noise 1 [N,1,4,4] with N of 2 or 1, got f32[3,1,4,4]");
  EXPECT_ERROR(Error, gen.update_w_avg(zeros({3})), "expected w [...,4], got f32[3]");
  EXPECT_ERROR(Error, disc(zeros({4, 3, 4, 4})), "expected images [N,3,8,8]");
  EXPECT_ERROR(Error, StyleGANGenerator({.size = 12}), "expected a size of 4, 8, 16");
  EXPECT_ERROR(Error, StyleGANGenerator({.style = 0}), "expected style in");
  EXPECT_ERROR(Error, StyleGANGenerator({.size = 8, .w_avg_decay = 2}), "w_avg_decay in [0,1], got 2");
  EXPECT_ERROR(Error, StyleGANDiscriminator({.size = 8, .rgb_kernel = 2}), "rgb_kernel of 1 or 3, got 2");
}

TEST(GanNetworks, ReportWhatTheyCannotTake) {
  DCGANGenerator gen({.size = 8, .width = 2, .latent = 3});
  DCGANGenerator labeled({.size = 8, .width = 2, .latent = 3, .classes = 2});
  DCGANDiscriminator disc({.size = 8, .width = 2});
  EXPECT_ERROR(Error, gen(zeros({2, 4})), "expected z [N,3] or [N,3,1,1], got f32[2,4]");
  EXPECT_ERROR(Error, gen(zeros({2, 3}), tensor({0, 1})), "has no classes");
  EXPECT_ERROR(Error, labeled(zeros({2, 3})), "call it with labels");
  EXPECT_ERROR(Error, labeled(zeros({2, 3}), tensor({0})), "one label for each of 2");
  EXPECT_THROW(labeled(zeros({2, 3}), tensor({0, 2})), IndexError);
  EXPECT_ERROR(Error, disc(zeros({2, 3, 16, 16})), "expected images [N,3,8,8], got f32[2,3,16,16]");

  EXPECT_ERROR(Error, DCGANGenerator({.size = 28}), "expected a size of 8, 16, 32, ...");
  EXPECT_ERROR(Error, LSGANGenerator({.size = 16}), "expected a size of 32, 64, 128, ...");
  EXPECT_ERROR(Error, LSGANGenerator({.size = 32, .width = 6}), "divisible by 4");
  EXPECT_ERROR(Error, WGANGPGenerator({.size = 8192}), "channel_base / size");
  EXPECT_ERROR(Error, WGANGPSmallGenerator({.size = 30}), "28 or 32");
  EXPECT_ERROR(Error, DCGANDiscriminator({.width = int64_t{1} << 40}), "expected width in");
  EXPECT_ERROR(Error, PGGANGenerator({.channel_decay = NAN}), "channel_decay");

  PGGANGenerator grows({.size = 8, .latent = 3, .channel_base = 16});
  PGGANDiscriminator judge({.size = 8, .channel_base = 16});
  const Tensor z = zeros({4, 3}), x = zeros({4, 3, 8, 8});
  EXPECT_ERROR(Error, grows(z, {.size = 16}), "a scale of at most 8 pixels, got 16");
  EXPECT_ERROR(Error, grows(z, {.size = 2}), "expected a size of 4, 8, 16");
  EXPECT_ERROR(Error, grows(z, {.size = 8, .fade = 1.5}), "a fade in [0,1], got 1.5");
  EXPECT_ERROR(Error, judge(x, {.size = 4}), "expected images [N,3,4,4]");

  SNGANGenerator sngan({.size = 8, .latent = 3, .classes = 2, .width = 2});
  SNGANDiscriminator unlabeled({.size = 16, .width = 2});
  EXPECT_ERROR(StateError, sngan(zeros({2, 3})), "call it with labels");
  EXPECT_ERROR(ShapeError, sngan(zeros({2, 3}), tensor({0})), "one label for each of 2");
  EXPECT_THROW(sngan(zeros({2, 3}), tensor({0, 2})), IndexError);
  EXPECT_ERROR(StateError, unlabeled(zeros({2, 3, 16, 16}), tensor({0, 1})), "has no classes");
  EXPECT_ERROR(ShapeError, unlabeled(zeros({2, 3, 8, 8})), "expected images [N,3,16,16]");
  EXPECT_ERROR(ValueError, SNGANDiscriminator({.size = 8}), "expected a size of 16, 32, 64, ...");
  R3GANDiscriminator r3gan({.widths = {2, 2}, .classes = 2, .group_width = 2});
  EXPECT_ERROR(StateError, r3gan(zeros({2, 3, 8, 8})), "call it with labels");
  EXPECT_ERROR(ShapeError, r3gan(zeros({2, 3, 16, 16}), tensor({0, 1})), "expected images [N,3,8,8]");
  EXPECT_ERROR(ValueError, R3GANGenerator({.widths = {12}}), "divisible by group_width 16, got 12");
  EXPECT_ERROR(ValueError, R3GANGenerator({.widths = {}}), "the number of widths");
}

// Labels change what a network computes.
TEST(GanNetworks, TakeLabels) {
  manual_seed(1);
  DCGANGenerator gen({.size = 8, .width = 4, .latent = 3, .classes = 2});
  DCGANDiscriminator disc({.size = 8, .width = 4, .classes = 2});
  gen.eval(), disc.eval();
  const Tensor z = randn({1, 3}), x = gen(z, tensor({0}));
  EXPECT_GT(largest_difference(x, gen(z, tensor({1}))), 0);
  EXPECT_NE(disc(x, tensor({0})).item<double>(), disc(x, tensor({1})).item<double>());
}

const StyleGAN2GeneratorOptions kStyleGAN2 = {
    .size = 8, .latent = 4, .style = 3, .mapping_layers = 2, .channel_base = 32, .channel_max = 4};

TEST(Stylegan2, StartsWithUnitWeightsAndStyles) {
  manual_seed(2);
  const StyleGAN2Generator gen(
      {.size = 8, .latent = 64, .style = 64, .channel_base = 512, .channel_max = 64});
  expect_deviation(gen, "mapping.fc7.weight", 100);  // 1 / lr_mul
  expect_deviation(gen, "synthesis.b4.const", 1);
  expect_deviation(gen, "synthesis.b8.conv0.weight", 1);
  expect_deviation(gen, "synthesis.b8.conv0.affine.weight", 1);
  EXPECT_EQ(gen.parameter("synthesis.b8.conv0.affine.bias").to_vector<float>(), std::vector<float>(64, 1));
  EXPECT_EQ(gen.parameter("synthesis.b8.conv0.noise_strength").item<float>(), 0);
  EXPECT_EQ(select(gen.buffer("synthesis.b8.conv1.resample_filter"), 0, 0).to_vector<float>(),
            (std::vector<float>{1 / 64.F, 3 / 64.F, 3 / 64.F, 1 / 64.F}));
}

TEST(Stylegan2, AveragesWOnlyWhenTold) {
  StyleGAN2GeneratorOptions o = kStyleGAN2;
  o.w_avg_decay = 0.75;
  StyleGAN2Generator gen(o);
  const Tensor ws = gen.mapping(randn({5, 4}));
  gen(randn({5, 4}));
  EXPECT_EQ(max(abs(gen.mapping.w_avg)).item<double>(), 0);
  gen.mapping.update_w_avg(ws);
  const Tensor average = mean(select(ws, 1, 0), 0) * 0.25;
  EXPECT_LT(largest_difference(gen.mapping.w_avg, average), 1e-6);
  gen.mapping.update_w_avg(tensor({{4.0F, 0.0F, 8.0F}}));
  EXPECT_LT(largest_difference(gen.mapping.w_avg, average * 0.75 + tensor({1.0F, 0.0F, 2.0F})), 1e-6);
  EXPECT_EQ(
      largest_difference(gen.mapping(randn({2, 4}), {.truncation = 0}), expand(gen.mapping.w_avg, {2, 4, 3})),
      0);
  EXPECT_ERROR(ShapeError, gen.mapping.update_w_avg(ones({2, 4})), "[update_w_avg]", "[N,3]", "f32[2,4]");
}

TEST(Stylegan2, TakesNoiseOfItsSizes) {
  StyleGAN2Generator gen(kStyleGAN2);
  const Tensor z = randn({2, 4});
  nn::init::ones_(gen.parameter("synthesis.b8.conv0.noise_strength"));
  EXPECT_EQ(gen.synthesis.noise_sizes(), (std::vector<int64_t>{4, 8, 8}));
  std::vector<Tensor> planes;
  for (int64_t size : gen.synthesis.noise_sizes()) planes.push_back(zeros({1, 1, size, size}));
  const auto image = [&](const SynthesisNoise& noise) { return gen(z, {}, noise); };
  const Tensor quiet = image({.mode = nn::NoiseMode::kNone});
  EXPECT_EQ(largest_difference(image({.planes = planes}), quiet), 0);
  EXPECT_GT(largest_difference(gen(z), gen(z)), 1e-3);
  EXPECT_EQ(
      largest_difference(image({.mode = nn::NoiseMode::kFixed}), image({.mode = nn::NoiseMode::kFixed})), 0);
  EXPECT_GT(largest_difference(image({.mode = nn::NoiseMode::kFixed}), quiet), 1e-3);
  EXPECT_ERROR(ShapeError, image({.planes = {planes[0], planes[0], planes[2]}}), "plane 1", "[1,1,8,8]");
  EXPECT_ERROR(ValueError, image({.planes = {planes[0]}}), "3 planes", "got 1");
}

TEST(Stylegan2, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(ValueError, StyleGAN2Generator({.size = 24}), "[StyleGAN2Generator]", "24");
  EXPECT_ERROR(ValueError, StyleGAN2Generator({.size = 1024, .channel_base = 512}), "largest block", "got 0");
  EXPECT_ERROR(ValueError, StyleGAN2Discriminator({.size = 4}), "[StyleGAN2Discriminator]", "got 4");
  StyleGAN2GeneratorOptions with_labels = kStyleGAN2;
  with_labels.classes = 3;
  StyleGAN2Generator gen(kStyleGAN2), conditional(with_labels);
  const Tensor z = randn({2, 4}), labels = tensor({0, 2});
  EXPECT_ERROR(StateError, gen(z, labels), "no classes");
  EXPECT_ERROR(StateError, conditional(z), "3 classes");
  EXPECT_ERROR(ShapeError, gen.synthesis(ones({2, 3, 3})), "[N,4,3]", "f32[2,3,3]");
  EXPECT_ERROR(ValueError, gen(z, {.truncation = 0.5, .cutoff = -1}), "cutoff", "-1");
}

}  // namespace
}  // namespace gradus::models
