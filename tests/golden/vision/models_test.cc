// VGG, vision transformers, MobileNetV3, EfficientNet and U-Net against torchvision and milesial/Pytorch-UNet
// (models.py): names, shapes and defaults of every named network; logits and gradients of small ones; options.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/tests/golden/golden.h"
#include "gradus/tests/golden/resnet/training_step.h"
#include "gradus/tests/support/error.h"

namespace gradus::models {
namespace {

using Make = std::function<std::unique_ptr<nn::Layer>()>;

// Makes a network with the default options of this preset.
template <class Net, auto kPreset> std::unique_ptr<nn::Layer> named() {
  return std::make_unique<Net>(kPreset({}));
}
template <class Net> Make network(typename Net::Options options) {
  return [options] { return std::make_unique<Net>(options); };
}

const std::map<std::string, Make> kNamed = {
    {"vgg11", named<VGG, vgg11>},
    {"vgg11_bn", named<VGG, vgg11_bn>},
    {"vgg13", named<VGG, vgg13>},
    {"vgg13_bn", named<VGG, vgg13_bn>},
    {"vgg16", named<VGG, vgg16>},
    {"vgg16_bn", named<VGG, vgg16_bn>},
    {"vgg19", named<VGG, vgg19>},
    {"vgg19_bn", named<VGG, vgg19_bn>},
    {"vit_b_16", named<VisionTransformer, vit_b_16>},
    {"vit_b_32", named<VisionTransformer, vit_b_32>},
    {"vit_l_16", named<VisionTransformer, vit_l_16>},
    {"vit_l_32", named<VisionTransformer, vit_l_32>},
    {"vit_h_14", named<VisionTransformer, vit_h_14>},
    {"mobilenet_v3_small", named<MobileNetV3, mobilenet_v3_small>},
    {"mobilenet_v3_large", named<MobileNetV3, mobilenet_v3_large>},
    {"efficientnet_b0", named<EfficientNet, efficientnet_b0>},
    {"efficientnet_b1", named<EfficientNet, efficientnet_b1>},
    {"efficientnet_b2", named<EfficientNet, efficientnet_b2>},
    {"efficientnet_b3", named<EfficientNet, efficientnet_b3>},
    {"efficientnet_b4", named<EfficientNet, efficientnet_b4>},
    {"efficientnet_b5", named<EfficientNet, efficientnet_b5>},
    {"efficientnet_b6", named<EfficientNet, efficientnet_b6>},
    {"efficientnet_b7", named<EfficientNet, efficientnet_b7>},
    {"unet", network<UNet>({})},
    {"unet_bilinear", network<UNet>({.bilinear = true})},
};

uint64_t hash_of(const nn::StateDict& state) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const auto& [name, t] : state)
    for (unsigned char c : name + " " + to_string(t.shape()) + "\n") h = (h ^ c) * 0x100000001B3u;
  return h;
}

TEST(ImageNetworks, HaveTheNamesShapesAndDefaultsOfPyTorch) {
  Context context = Context::current().snapshot();
  context.device = {DeviceType::kMeta};  // allocates nothing
  const ContextScope scope(context);
  std::ifstream file("tests/golden/vision/names.txt");
  size_t networks = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream in(line);
    std::string name;
    size_t tensors = 0;
    int64_t parameters = 0;
    uint64_t hash = 0;
    double dropout = 0, eps = 0, momentum = 0;
    in >> name >> tensors >> parameters >> std::hex >> hash >> std::dec >> dropout >> eps >> momentum;
    const auto net = kNamed.at(name)();
    EXPECT_EQ(net->state_dict().size(), tensors) << name;
    EXPECT_EQ(net->num_parameters(), parameters) << name;
    EXPECT_EQ(hash_of(net->state_dict()), hash) << name;
    for (const auto& [path, m] : net->named_modules()) {
      if (const auto* norm = dynamic_cast<const nn::BatchNorm*>(m)) {
        EXPECT_EQ(norm->options().eps, eps) << name << " " << path;
        EXPECT_EQ(norm->options().momentum, momentum) << name << " " << path;
      } else if (const auto* drop = dynamic_cast<const nn::Dropout*>(m)) {
        EXPECT_EQ(drop->options().p, dropout) << name << " " << path;
      }
    }
    ++networks;
  }
  EXPECT_EQ(networks, kNamed.size());
}

const std::map<std::string, Make> kSmall = {
    {"vgg", network<VGG>({.stages = {1, 1, 2}, .width = 4, .hidden = 16, .classes = 10, .dropout = 0})},
    {"vgg_bn",
     network<VGG>(
         {.stages = {1, 1, 2}, .batch_norm = true, .width = 4, .hidden = 16, .classes = 10, .dropout = 0})},
    {"vit", network<VisionTransformer>({.image_size = 32,
                                        .patch_size = 8,
                                        .num_layers = 2,
                                        .num_heads = 2,
                                        .hidden_dim = 16,
                                        .mlp_dim = 24,
                                        .classes = 10})},
    {"mobilenet_v3_small",
     network<MobileNetV3>(mobilenet_v3_small({.width_mult = 0.25, .classes = 10, .dropout = 0}))},
    {"mobilenet_v3_large",
     network<MobileNetV3>(mobilenet_v3_large({.width_mult = 0.35, .classes = 10, .dropout = 0}))},
    {"efficientnet",
     network<EfficientNet>(
         {.width_mult = 0.25, .depth_mult = 1.5, .dropout = 0, .stochastic_depth_prob = 0, .classes = 10})},
    {"unet", network<UNet>({.width = 4})},
    {"unet_bilinear", network<UNet>({.bilinear = true, .width = 4})},
};

class ImageNetwork : public testing::TestWithParam<std::string> {};

TEST_P(ImageNetwork, ComputesPyTorchsLogitsAndGradients) {
  const io::SafetensorsFile file = golden::load("vision/models");
  const auto expected = [&](const char* what) { return file.at(GetParam() + "/" + what); };
  const auto net = kSmall.at(GetParam())();
  net->to(DType::kF64).load_state_dict(golden::state_from_formula(*net));
  const bool unet = GetParam().starts_with("unet");
  const int64_t h = unet ? 36 : 32, w = unet ? 44 : 32;
  const Tensor x = tensor(golden::uniform("x", 4 * 3 * h * w), {4, 3, h, w}) * 2;
  net->eval();
  const Tensor logits = (*net)(x);
  golden::expect_near(unet ? slice(logits, -1, 0, 8) : logits, expected("logits"), 1e-9, "logits");
  net->train();
  GradManager gm;
  gm.attach(net->parameters());
  {
    auto recording = gm.record();
    const Tensor loss = mean(square((*net)(x)));
    golden::expect_near(loss, expected("loss"), 1e-9, "loss");
    gm.backward(loss);
  }
  std::vector<double> norms;
  for (const Tensor& p : net->parameters()) norms.push_back(golden::norm_of(p.grad()));
  golden::expect_near(tensor(norms), expected("grad"), 1e-9, "gradients");
}

INSTANTIATE_TEST_SUITE_P(, ImageNetwork,
                         testing::Values("vgg", "vgg_bn", "vit", "mobilenet_v3_small", "mobilenet_v3_large",
                                         "efficientnet", "unet", "unet_bilinear"),
                         [](const auto& info) { return info.param; });

double std_of(const Tensor& x) { return std(x).item<double>(); }

TEST(ImageNetworks, StartFromTorchvisionsDistributions) {
  manual_seed(1);
  const VGG vgg({.stages = {1, 1}, .width = 32, .hidden = 64});
  EXPECT_NEAR(std_of(vgg.parameter("features.3.weight")), std::sqrt(2.0 / (64 * 9)), 1e-3);
  EXPECT_NEAR(std_of(vgg.parameter("classifier.0.weight")), 0.01, 1e-4);
  const MobileNetV3 mobile(mobilenet_v3_small({.width_mult = 0.5}));
  EXPECT_NEAR(std_of(mobile.parameter("features.12.0.weight")), std::sqrt(2.0 / 288), 2e-3);
  EXPECT_NEAR(std_of(mobile.parameter("classifier.0.weight")), 0.01, 1e-4);
  const EfficientNet efficient({.width_mult = 0.25, .classes = 100});
  EXPECT_NEAR(amax(efficient.parameter("classifier.1.weight")).item<double>(), 0.1, 1e-3);
  const VisionTransformer vit({.image_size = 64, .num_layers = 1, .hidden_dim = 96, .mlp_dim = 96});
  EXPECT_NEAR(std_of(vit.parameter("conv_proj.weight")), std::sqrt(1.0 / (3 * 256)), 1e-3);
  EXPECT_NEAR(std_of(vit.parameter("encoder.pos_embedding")), 0.02, 2e-3);
  EXPECT_NEAR(std_of(vit.parameter("encoder.layers.encoder_layer_0.mlp.0.bias")), 1e-6, 3e-7);
  EXPECT_EQ(amax(abs(vit.parameter("heads.head.weight"))).item<double>(), 0);
  for (const char* bias : {"features.0.bias", "classifier.6.bias"})
    EXPECT_EQ(amax(abs(vgg.parameter(bias))).item<double>(), 0) << bias;
}

TEST(EfficientNet, SkipsBlocksOfSamplesAtRandomInTraining) {
  manual_seed(1);
  const auto outputs_differ = [](double p, bool training) {
    EfficientNet net(
        {.width_mult = 0.25, .depth_mult = 2, .dropout = 0, .stochastic_depth_prob = p, .classes = 4});
    net.train(training);
    const Tensor x = randn({2, 3, 32, 32});
    return net(x).to_vector<float>() != net(x).to_vector<float>();
  };
  EXPECT_TRUE(outputs_differ(0.8, true));
  EXPECT_FALSE(outputs_differ(0, true));
  EXPECT_FALSE(outputs_differ(0.8, false));
}

TEST(ImageNetworks, TakeDropoutOfTheNamedNetworkUnlessGiven) {
  EXPECT_EQ(efficientnet_b4().dropout, 0.4);
  EXPECT_EQ(efficientnet_b4({.dropout = 0.1}).dropout, 0.1);
  EXPECT_EQ(vgg19_bn({.classes = 7}).classes, 7);
}

TEST(ImageNetworks, ThrowOnOptionsOutOfRange) {
  EXPECT_THROW(VGG({.stages = {}}), ValueError);
  EXPECT_THROW(VGG({.stages = {1, 0}}), ValueError);
  EXPECT_THROW(VGG({.width = int64_t{1} << 61}), ValueError);
  EXPECT_THROW(VGG({.classes = 0}), ValueError);
  EXPECT_THROW(MobileNetV3({.width_mult = NAN}), ValueError);
  EXPECT_THROW(MobileNetV3({.width_mult = 1e300}), ValueError);
  EXPECT_THROW(MobileNetV3({.in = 0}), ValueError);
  EXPECT_THROW(EfficientNet({.depth_mult = 0}), ValueError);
  EXPECT_THROW(EfficientNet({.stochastic_depth_prob = 1.5}), ValueError);
  EXPECT_THROW(VisionTransformer({.image_size = 100}), ValueError);
  EXPECT_THROW(VisionTransformer({.num_heads = 7}), ValueError);
  EXPECT_THROW(VisionTransformer({.image_size = int64_t{1} << 40, .patch_size = 1}), ValueError);
  EXPECT_THROW(UNet({.width = 0}), ValueError);
  VisionTransformer vit({.image_size = 32, .num_layers = 1, .hidden_dim = 24, .mlp_dim = 8});
  EXPECT_ERROR(ShapeError, vit(zeros({1, 3, 32, 16})), "[VisionTransformer]", "[N,3,32,32]",
               "f32[1,3,32,16]");
  EXPECT_THROW(vit(zeros({3, 32, 32})), ShapeError);
}

}  // namespace
}  // namespace gradus::models
