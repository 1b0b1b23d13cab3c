// The ResNet family: names, shapes and order of the state dict as torchvision's
// (tests/golden/resnet/names.txt), numbers of parameters and FLOPs from the papers, shapes of results,
// initial values, errors.
#include "gradus/models/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "gradus/autograd/ops/ops.h"
#include "gradus/models/mnist_net.h"
#include "gradus/tests/support/error.h"

namespace gradus::models {
namespace {

using testing::HasSubstr;

// Networks made in its scope are on the meta device and allocate nothing.
struct OnMeta {
  OnMeta() { context.device = {DeviceType::kMeta}; }
  Context context = Context::current().snapshot();
  ContextScope scope{context};
};

struct Golden {
  int64_t tensors = 0, parameters = 0;
  uint64_t hash = 0;               // FNV-1a of all names and shapes
  std::vector<std::string> names;  // "conv1.weight [64,3,7,7]"; of some networks only
};

std::map<std::string, Golden> golden() {
  std::ifstream file("tests/golden/resnet/names.txt");
  std::map<std::string, Golden> all;
  Golden* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (line.starts_with("  ")) {
      current->names.push_back(line.substr(2));
      continue;
    }
    std::istringstream in(line);
    std::string network;
    in >> network;
    current = &all[network];
    in >> current->tensors >> current->parameters >> std::hex >> current->hash;
  }
  return all;
}

std::vector<std::string> names_of(const nn::Module& net) {
  std::vector<std::string> names;
  for (const auto& [name, t] : net.state_dict()) names.push_back(name + " " + to_string(t.shape()));
  return names;
}

uint64_t hash_of(const std::vector<std::string>& names) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const std::string& name : names)
    for (unsigned char c : name + "\n") h = (h ^ c) * 0x100000001B3u;
  return h;
}

TEST(ResNet, HasTorchvisionsNamesAndShapesInItsOrder) {
  const OnMeta meta;
  const auto all = golden();
  ASSERT_EQ(all.size(), 10u);
  for (const auto& [network, expected] : all) {
    const ResNet net(resnet(network, {}));
    const std::vector<std::string> names = names_of(net);
    if (!expected.names.empty()) {
      EXPECT_THAT(names, testing::ElementsAreArray(expected.names)) << network;
    }
    EXPECT_EQ(int64_t(names.size()), expected.tensors) << network;
    EXPECT_EQ(hash_of(names), expected.hash) << network;
    EXPECT_EQ(net.num_parameters(), expected.parameters) << network;
  }
}

// He et al., CVPR 2016, table 6: 0.27, 0.46, 0.66, 0.85 and 1.7 million.
TEST(CifarResNet, HasAsManyParametersAsInThePaper) {
  const OnMeta meta;
  const std::pair<int64_t, int64_t> sizes[] = {
      {20, 269722}, {32, 464154}, {44, 658586}, {56, 853018}, {110, 1727962}};
  for (const auto& [depth, parameters] : sizes)
    EXPECT_EQ(ResNet(cifar_resnet(depth)).num_parameters(), parameters) << depth;
}

TEST(CifarResNet, HasItsDepth) {
  const OnMeta meta;
  ResNet net(cifar_resnet(56));
  int64_t layers = 0;
  for (const auto& [path, m] : net.named_modules())
    layers += dynamic_cast<nn::Conv2d*>(m) || dynamic_cast<nn::Linear*>(m);
  EXPECT_EQ(layers, 56);
  for (int64_t depth : {2, 7, 18, 21, 51, -4, 100000}) EXPECT_THROW(cifar_resnet(depth), ValueError) << depth;
}

// The parameter-free shortcut of a block of stride 2: every second pixel, with channels of zeros on both
// sides.
TEST(CifarResNet, ShortcutsPadChannels) {
  ResNet net(ResNetOptions{.stages = {1, 1},
                           .stem = ResNetOptions::Stem::kCifar,
                           .shortcut = ResNetOptions::Shortcut::kPad,
                           .width = 4,
                           .classes = 2,
                           .zero_init_residual = true});
  net.eval();
  const Tensor x = rand({1, 4, 6, 6});
  // With zero_init_residual the block is its shortcut.
  auto& block = dynamic_cast<nn::Layer&>(net.find("layer2.0"));
  const Tensor y = block(x);
  EXPECT_EQ(to_string(y.shape()), "[1,8,3,3]");
  const std::vector<float> in = x.to_vector<float>(), out = y.to_vector<float>();
  for (int c = 0; c < 8; ++c)
    for (int i = 0; i < 9; ++i) {
      const float expected = c < 2 || c >= 6 ? 0 : in[(c - 2) * 36 + (i / 3) * 12 + (i % 3) * 2];
      EXPECT_EQ(out[c * 9 + i], expected) << "channel " << c << ", pixel " << i;
    }
}

TEST(ResNet, GivesTheFeaturesThatItsLastLayerSees) {
  manual_seed(1);
  ResNet net(cifar_resnet(20));
  MnistNet digits;
  net.eval(), digits.eval();
  const Tensor x = randn({2, 3, 32, 32}), y = randn({2, 1, 28, 28});
  const Tensor features = net.features(x), numbers = digits.features(y);
  EXPECT_EQ(features.shape(), (Shape{2, 64}));
  EXPECT_EQ(numbers.shape(), (Shape{2, 128}));
  auto& last = dynamic_cast<nn::Layer&>(*net.children().back());
  EXPECT_EQ(last(features).to_vector<float>(), net(x).to_vector<float>());
  EXPECT_EQ(digits.fc2(numbers).to_vector<float>(), digits(y).to_vector<float>());
}

TEST(ResNet, GoesThroughItsPartsOneByOne) {
  manual_seed(1);
  for (const char* name : {"resnet18", "resnet20"}) {
    ResNet net(resnet(name, {.classes = 7}));
    net.eval();
    const Tensor x = randn({2, 3, 32, 32});
    Tensor h = net.stem(x);
    const auto stages = int64_t(net.options().stages.size());
    for (int64_t s = 1; s <= stages; ++s) h = net.stage(s, h);
    EXPECT_EQ(net.head(h).to_vector<float>(), net(x).to_vector<float>()) << name;
    EXPECT_THROW(net.stage(0, h), ValueError);
    EXPECT_THROW(net.stage(stages + 1, h), ValueError);
  }
}

// 10^9 multiply-adds, of 2 FLOPs each, that the papers and torchvision's pages give for images of 224 x 224.
TEST(ResNet, CostsWhatItIsSaidTo) {
  const OnMeta meta;
  const std::pair<const char*, double> costs[] = {{"resnet18", 1.814},          {"resnet34", 3.664},
                                                  {"resnet50", 4.089},          {"resnet101", 7.801},
                                                  {"resnet152", 11.514},        {"resnext50_32x4d", 4.230},
                                                  {"resnext101_32x8d", 16.414}, {"resnext101_64x4d", 15.460},
                                                  {"wide_resnet50_2", 11.398},  {"wide_resnet101_2", 22.753}};
  for (const auto& [name, giga] : costs) {
    ResNet net(resnet(name, {}));
    const nn::Summary s = nn::summary(net, {1, 3, 224, 224});
    EXPECT_NEAR(double(s.forward_flops) / 2e9, giga, 0.001) << name;
    EXPECT_EQ(to_string(s.calls.front().output), "[1,1000]") << name;
  }
  ResNet small(cifar_resnet(20));
  EXPECT_NEAR(double(nn::summary(small, {1, 3, 32, 32}).forward_flops) / 2e6, 40.55, 0.01);
}

TEST(ResNet, StartsAsTorchvisions) {
  manual_seed(3);
  ResNet net(resnet18({.classes = 10}));
  for (const auto& [name, p] : net.named_parameters()) {
    const std::vector<double> v = p.to_vector<double>();
    if (p.dim() == 4) {
      // Normal by fan_out; six standard errors, 1 / sqrt(2 n) of the deviation, are allowed.
      const double deviation = std::sqrt(2.0 / double(p.size(0) * p.size(2) * p.size(3)));
      double squares = 0;
      for (double e : v) squares += e * e;
      EXPECT_NEAR(std::sqrt(squares / double(v.size())), deviation,
                  6 * deviation / std::sqrt(2.0 * double(v.size())))
          << name;
    } else if (!name.starts_with("fc")) {
      EXPECT_THAT(v, testing::Each(name.ends_with("weight") ? 1.0 : 0.0)) << name;
    }
  }
}

TEST(ResNet, ZeroInitResidualMakesBlocksTheIdentity) {
  for (const char* name : {"resnet50", "resnet20"}) {
    ResNet net(resnet(name, {.classes = 2, .zero_init_residual = true}));
    int zeros = 0, ones = 0;
    for (const auto& [path, p] : net.named_parameters()) {
      if (!path.ends_with("weight") || p.dim() != 1) continue;
      const bool last = path.ends_with(std::string(name) == "resnet50" ? "bn3.weight" : "bn2.weight");
      EXPECT_THAT(p.to_vector<double>(), testing::Each(last ? 0.0 : 1.0)) << path;
      ++(last ? zeros : ones);
    }
    EXPECT_GT(zeros, 7) << name;
    EXPECT_GT(ones, 8) << name;
  }
}

TEST(ResNet, TakesOtherInputs) {
  ResNetOptions o = cifar_resnet(8, {.classes = 4});
  o.in = 1;
  ResNet net(o);
  EXPECT_EQ(to_string(net(randn({2, 1, 28, 28})).shape()), "[2,4]");
}

// As a member of another module its names are below it.
TEST(ResNet, CanBeAMember) {
  struct Detector : nn::Layer {
    ResNet body{this, "body", resnet18({.classes = 4})};
    Tensor forward(const Tensor& x) override { return body(x); }
  };
  const OnMeta meta;
  const Detector net;
  EXPECT_EQ(net.state_dict().front().first, "body.conv1.weight");
}

TEST(ResNet, ExplainsWhatItDoesNotTake) {
  const auto text_of = [](auto f) -> std::string {
    try {
      f();
    } catch (const ValueError& e) {
      return e.what();
    }
    return "no ValueError";
  };
  EXPECT_THAT(text_of([] { resnet("resnet19", {}); }),
              testing::AllOf(HasSubstr("[resnet]"), HasSubstr("'resnet19'"), HasSubstr("resnet18"),
                             HasSubstr("resnet110")));
  EXPECT_THAT(text_of([] { cifar_resnet(21); }), HasSubstr("6 n + 2, got 21"));
  const auto make = [&](ResNetOptions o) { return text_of([&] { ResNet net(o); }); };
  EXPECT_THAT(make({.stages = {}}), HasSubstr("at least one stage"));
  EXPECT_THAT(make({.stages = {2, 0}}), HasSubstr("at least one block"));
  EXPECT_THAT(make({.width = 0}), HasSubstr("width"));
  EXPECT_THAT(make({.classes = 0}), HasSubstr("classes"));
  EXPECT_THAT(make({.groups = 2}), HasSubstr("bottleneck"));
  ResNet net(resnet18({.classes = 2}));
  EXPECT_ERROR(ShapeError, net(randn({1, 1, 32, 32})), "conv1");
}

TEST(ResNet, AllNamesBuild) {
  const OnMeta meta;
  EXPECT_EQ(resnet_names().size(), 15u);
  for (const std::string& name : resnet_names())
    EXPECT_GT(ResNet(resnet(name, {})).num_parameters(), 0) << name;
}

}  // namespace
}  // namespace gradus::models
