// StyleGAN2's networks and its modulated convolution against the same in PyTorch (stylegan2.py wrote
// stylegan2.safetensors): outputs and gradients, by name of the case. golden_layers.h has the tolerances. The file's
// weights have the names of StyleGAN2-ADA.
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/tests/nn/layers/golden_layers.h"
#include "gradus/train/gan/gan.h"

namespace gradus::golden {
namespace {

using namespace models;

const SynthesisNoise kFixed = {.mode = nn::NoiseMode::kFixed};

void add_convolutions(std::vector<GoldenLayer>& cases, nn::ModulationForm form) {
  const auto add = [&](const char* name, nn::ModulatedConv2dOptions o) {
    o.form = form;
    cases.push_back(golden<nn::ModulatedConv2d>(concat("ModulatedConv2d/", name), o,
                                                [](nn::ModulatedConv2d& m, X x) { return m(x[0], x[1]); }));
  };
  add("same", {.in = 3, .out = 2, .kernel = 3, .style = 4});
  add("up", {.in = 3, .out = 2, .kernel = 3, .style = 4, .up = 2});
  add("down", {.in = 3, .out = 2, .kernel = 3, .style = 4, .down = 2, .gain = std::numbers::sqrt2});
  add("plain", {.in = 3, .out = 2, .kernel = 3, .style = 4, .demodulate = false, .gain = 0.5});
  add("1x1", {.in = 3, .out = 2, .kernel = 1, .style = 4, .demodulate = false, .taps = {}});
  add("skewed", {.in = 2, .out = 3, .kernel = 3, .style = 2, .up = 2, .taps = {1, 2, 5, 3}});
}

// The mean square of (length of J - average), J the gradient of sum(images * y) at the style vectors.
Tensor path_length(StyleGAN2Generator& gen, const Tensor& z, const Tensor& y, const Tensor& average) {
  const Tensor ws = gen.mapping(z);
  const auto f = [&](const Tensor& at) { return sum(gen.synthesis(at, kFixed) * y); };
  const Tensor lengths = sqrt(mean(sum(square(autograd::grad(f, ws)), 2), 1));
  return mean(square(lengths - average));
}

void add_generators(std::vector<GoldenLayer>& cases, nn::ModulationForm form) {
  const StyleGAN2GeneratorOptions small = {.size = 8,
                                           .latent = 5,
                                           .style = 4,
                                           .mapping_layers = 2,
                                           .channel_base = 32,
                                           .channel_max = 6,
                                           .form = form};
  const auto add = [&](const char* name, StyleGAN2GeneratorOptions o, auto call) {
    cases.push_back(golden<StyleGAN2Generator>(name, o, call));
  };
  StyleGAN2GeneratorOptions labels = small, larger = small;
  labels.classes = 3;
  larger.size = 16;
  larger.channel_base = 64;
  add("Generator/16", larger, [](StyleGAN2Generator& gen, X x) { return gen(x[0], {}, kFixed); });
  add("Generator/none", small,
      [](StyleGAN2Generator& gen, X x) { return gen(x[0], {}, {.mode = nn::NoiseMode::kNone}); });
  add("Generator/planes", small, [](StyleGAN2Generator& gen, X x) {
    return gen(x[0], {}, {.planes = {x.begin() + 1, x.end()}});
  });
  add("Generator/4",
      {.size = 4,
       .channels = 1,
       .latent = 3,
       .style = 5,
       .mapping_layers = 1,
       .channel_base = 16,
       .channel_max = 4,
       .form = form},
      [](StyleGAN2Generator& gen, X x) { return gen(x[0], {}, kFixed); });
  add("Generator/truncated", small,
      [](StyleGAN2Generator& gen, X x) { return gen(x[0], {.truncation = 0.7}, kFixed); });
  add("Generator/cutoff", small,
      [](StyleGAN2Generator& gen, X x) { return gen(x[0], {.truncation = 0.5, .cutoff = 2}, kFixed); });
  add("Generator/labels", labels, [](StyleGAN2Generator& gen, X x) { return gen(x[0], x[1], {}, kFixed); });
  add("Generator/mixed", small, [](StyleGAN2Generator& gen, X x) {
    const Tensor coarse = gen.mapping(x[0]), fine = gen.mapping(x[1]);
    return gen.synthesis(gan::mix_styles(coarse, fine, x[2]), kFixed);
  });
  add("Generator/PathLength", small,
      [](StyleGAN2Generator& gen, X x) { return path_length(gen, x[0], x[1], x[2]); });
}

// |gradient at the images|^2, a mean over the images, with a gradient of the images too.
template <class F> Tensor r1(const Tensor& images, F scores) {
  const Tensor g = autograd::grad([&](const Tensor& x) { return sum(scores(x)); }, images);
  return sum(square(g)) / double(g.size(0));
}

void add_discriminators(std::vector<GoldenLayer>& cases) {
  const auto add = [&](const char* name, StyleGAN2DiscriminatorOptions o, auto call) {
    cases.push_back(golden<StyleGAN2Discriminator>(name, o, call));
  };
  const auto plain = [](StyleGAN2Discriminator& disc, X x) { return disc(x[0]); };
  const auto with_labels = [](StyleGAN2Discriminator& disc, X x) { return disc(x[0], x[1]); };
  const StyleGAN2DiscriminatorOptions small = {.size = 8, .channel_base = 32, .channel_max = 6};
  StyleGAN2DiscriminatorOptions grouped = small, orig = small, labels = small, few_layers = small,
                                cmap = small;
  grouped.channels = orig.channels = 1;
  grouped.group_size = 2;
  orig.form = StyleGAN2DiscriminatorOptions::Form::kOrig;
  labels.classes = few_layers.classes = cmap.classes = 3;
  few_layers.mapping_layers = cmap.mapping_layers = 2;
  cmap.label_features = 5;
  add("Discriminator/16", {.size = 16, .channel_base = 64, .channel_max = 6}, plain);
  add("Discriminator/group", grouped, plain);
  add("Discriminator/orig", orig, plain);
  add("Discriminator/labels", labels, with_labels);
  add("Discriminator/cmap", cmap, with_labels);
  add("Discriminator/R1", small, [](StyleGAN2Discriminator& disc, X x) {
    return r1(x[0], [&](const Tensor& images) { return disc(images); });
  });
  add("Discriminator/R1/labels", few_layers, [](StyleGAN2Discriminator& disc, X x) {
    return r1(x[0], [&](const Tensor& images) { return disc(images, x[1]); });
  });
}

// The cases in each form of the modulated convolution, by name; those of discriminators, which have none, once.
std::vector<std::pair<std::string, GoldenLayer>> cases() {
  std::vector<std::pair<std::string, GoldenLayer>> named;
  for (const nn::ModulationForm form : {nn::ModulationForm::kScaled, nn::ModulationForm::kGrouped}) {
    std::vector<GoldenLayer> layers;
    add_convolutions(layers, form);
    add_generators(layers, form);
    if (form == nn::ModulationForm::kScaled) add_discriminators(layers);
    for (GoldenLayer& layer : layers) {
      // A relative tolerance of 4e-6 in f32: some 40 layers, forward and backward, round by 6e-8 each.
      layer.single = 4e-6;
      std::string name = layer.name + (form == nn::ModulationForm::kScaled ? "" : "/grouped");
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      named.emplace_back(name, layer);
    }
  }
  return named;
}

const io::SafetensorsFile& file() {
  static const io::SafetensorsFile f = io::load_safetensors("tests/golden/gan/stylegan2.safetensors");
  return f;
}

class StyleGAN2 : public testing::TestWithParam<std::pair<std::string, GoldenLayer>> {};

TEST_P(StyleGAN2, AgreesWithPyTorch) { expect_golden(file(), GetParam().second); }

INSTANTIATE_TEST_SUITE_P(, StyleGAN2, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.first; });

TEST(StyleGAN2Cases, AreAllTested) {
  std::set<std::string> names;
  for (const auto& [title, layer] : cases()) names.insert(layer.name);
  expect_all_tested(file(), names);
}

}  // namespace
}  // namespace gradus::golden
