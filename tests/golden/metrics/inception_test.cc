// Networks that metrics of generated images look through, with numbers from formulas, against PyTorch, torchvision and
// Pillow (inception.py): Inception v3, the preprocessing of images for it, LPIPS; and metrics of their results.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/models.h"
#include "gradus/tests/golden/golden.h"
#include "gradus/tests/golden/resnet/training_step.h"
#include "gradus/tests/golden/uniform.h"
#include "gradus/tests/support/error.h"
#include "gradus/train/metrics/metrics.h"

namespace gradus::models {
namespace {

Tensor golden(const std::string& name) {
  static const io::SafetensorsFile file = golden::load("metrics/inception");
  return file.at(name);
}
void expect_golden(const Tensor& given, const std::string& name, double tolerance = 1e-9) {
  golden::expect_near(given, golden(name), tolerance, name);
}
void expect_golden(double given, const std::string& name, double tolerance = 1e-9) {
  const double expected = golden(name).item<double>();
  EXPECT_NEAR(given, expected, tolerance * std::abs(expected)) << name;
}

Tensor numbers(const std::string& name, const Shape& shape) {
  return tensor(golden::uniform(name, shape.product()), shape);
}
Tensor images(const std::string& name, const Shape& shape) {
  return to(round((numbers(name, shape) + 1) * 127.5), DType::kU8);
}
template <class Net> void fill(Net& net) {
  net.to(DType::kF64).load_state_dict(golden::state_from_formula(net));
  net.eval();
}

InceptionV3& fid_network() {
  static InceptionV3 net(fid_inception_v3());
  static const bool filled = (fill(net), true);
  EXPECT_TRUE(filled);
  return net;
}

TEST(InceptionV3, ComputesTheFeaturesAndLogitsOfFid) {
  InceptionV3& net = fid_network();
  const auto off = no_record();
  const Tensor x = numbers("x", {3, 3, 139, 123}) * 2;
  for (const int64_t depth : {64, 192, 768, 2048})
    expect_golden(net.features(x, depth), "fid/" + std::to_string(depth));
  expect_golden(net(x), "fid/logits");
  const Tensor logits = net.logits(net.features(x), false);
  expect_golden(logits, "fid/logits_unbiased");
  expect_golden(metrics::class_scores(softmax(logits / 100, 1), {.splits = 1}).score, "fid/score");
}

TEST(InceptionV3, TrainsAsTorchvisions) {
  InceptionV3 net({.dropout = 0});
  fill(net);
  const Tensor x = numbers("x", {4, 3, 107, 107}) * 2;
  expect_golden(net(x), "inception_v3/logits");
  net.train();
  GradManager gm;
  gm.attach(net.parameters());
  {
    auto recording = gm.record();
    const Tensor loss = mean(square(net(x)));
    expect_golden(loss, "inception_v3/loss");
    gm.backward(loss);
  }
  std::vector<double> norms;
  for (const Tensor& p : net.parameters()) norms.push_back(golden::norm_of(p.grad()));
  expect_golden(tensor(norms), "inception_v3/grad");
}

TEST(InceptionV3, ThrowsOnOptionsAndDepthsOutOfRange) {
  EXPECT_THROW(InceptionV3({.classes = 0}), ValueError);
  EXPECT_THROW(InceptionV3({.dropout = 2}), ValueError);
  EXPECT_ERROR(ValueError, fid_network().features(zeros({1, 3, 75, 75}, {DType::kF64}), 100), "64", "100");
  EXPECT_ERROR(ValueError, fid_network().features(zeros({1, 3, 75, 75}, {DType::kF64}), 0), "64", "got 0");
}

// Every 13th row and 11th column of the network's input.
Tensor some_pixels(const Tensor& x) { return slice(slice(x, 2, 0, 299, 13), 3, 0, 299, 11); }

TEST(InceptionInput, ResizesAsTensorFlow1AndPillow) {
  const std::vector<std::pair<std::string, Shape>> sets = {
      {"small", {2, 1, 32, 32}}, {"wide", {1, 3, 40, 350}}, {"large", {1, 3, 512, 640}}};
  for (const auto& [name, shape] : sets) {
    const Tensor x = images(name, shape);
    expect_golden(some_pixels(inception_input(x, InceptionResize::kTf, DType::kF64)), "resize/tf/" + name);
    // Pillow rounds to f32 between the passes and at the end.
    expect_golden(some_pixels(inception_input(x, InceptionResize::kClean, DType::kF64)),
                  "resize/clean/" + name, 3e-7);
    EXPECT_EQ(inception_input(x).dtype(), DType::kF32);
  }
}

TEST(InceptionInput, ThrowsOnOtherImages) {
  EXPECT_ERROR(DTypeError, inception_input(zeros({1, 3, 8, 8})), "u8", "f32[1,3,8,8]");
  EXPECT_ERROR(ShapeError, inception_input(zeros({1, 2, 8, 8}, {DType::kU8})), "1 or 3", "u8[1,2,8,8]");
  EXPECT_THROW(inception_input(zeros({3, 8, 8}, {DType::kU8})), ShapeError);
  EXPECT_THROW(inception_input(Tensor()), ValueError);
}

TEST(FrechetDistance, OfFeaturesOfInceptionIsThatOfSingularValues) {
  const auto off = no_record();
  const auto statistics = [](const Tensor& x) {
    metrics::FeatureStatistics s;
    for (int64_t i = 0; i < x.size(0); i += 2)
      s.update(fid_network().features(
          inception_input(slice(x, 0, i, std::min(i + 2, x.size(0))), InceptionResize::kTf, DType::kF64),
          192));
    return s;
  };
  // Roots of eigenvalues that rounding makes 1e-16 times the largest.
  expect_golden(metrics::frechet_distance(statistics(images("a", {4, 3, 24, 24})),
                                          statistics(images("b", {3, 3, 24, 24}))),
                "frechet", 1e-5);
}

const VGGOptions kSmall = {.width = 4, .hidden = 16, .classes = 10};

LPIPS& lpips() {
  static LPIPS net({.vgg = kSmall});
  static const bool filled = (fill(net), true);
  EXPECT_TRUE(filled);
  return net;
}

TEST(VGG, ComputesTheSecondLinearLayerBeforeItsReLU) {
  VGG net(kSmall);
  fill(net);
  expect_golden(net.hidden(numbers("x", {2, 3, 40, 48}) * 2), "vgg/hidden");
}

TEST(LPIPS, ComputesPyTorchsDistances) {
  const Tensor a = numbers("a", {3, 3, 48, 40}), b = numbers("b", {3, 3, 48, 40});
  expect_golden(lpips()(a, b), "lpips/rgb");
  expect_golden(lpips()(slice(a, 1, 0, 1), slice(b, 1, 0, 1)), "lpips/gray");
  EXPECT_EQ(amax(abs(lpips()(a, a))).item<double>(), 0);
  EXPECT_ERROR(ShapeError, lpips()(a, slice(b, 0, 0, 2)), "one shape", "f64[2,3,48,40]");
  EXPECT_THROW(lpips()(zeros({1, 2, 48, 40}), zeros({1, 2, 48, 40})), ShapeError);
}

TEST(LPIPS, HasTheNamesOfItsWeights) {
  EXPECT_EQ(lpips().parameter("lin4.model.1.weight").shape(), (Shape{1, 32, 1, 1}));
  EXPECT_TRUE(lpips().parameter("vgg.features.28.weight").defined());
}

using Length = metrics::PerceptualPathLength;
using Space = metrics::PerceptualPathLengthOptions::Space;

Tensor generate(const Tensor& z) {
  return reshape(tanh(matmul(z, numbers("m", {8, 768}) / 2)), {z.size(0), 3, 16, 16});
}

// Returns the length over n pairs of latents, in batches of 50.
double path_length(const metrics::PerceptualPathLengthOptions& o, const Length::Generator& gen,
                   const Length::Distance& distance, int64_t n) {
  const Tensor a = numbers("a", {n, 8}) * 2, b = numbers("b", {n, 8}) * 2, t = (numbers("t", {n}) + 1) / 2;
  Length length(o);
  for (int64_t i = 0; i < n; i += 50) {
    const auto part = [&](const Tensor& x) { return slice(x, 0, i, std::min(i + 50, n)); };
    length.update(gen, distance, part(a), part(b), part(t));
  }
  return length.compute();
}

TEST(PerceptualPathLength, IsNumPys) {
  const auto perceptual = [](const Tensor& a, const Tensor& b) { return lpips()(a, b); };
  // Differences of 1e-4 of the images lose four digits.
  expect_golden(path_length({}, generate, perceptual, 250), "path_length/z", 1e-7);
  expect_golden(path_length({.space = Space::kW}, generate, perceptual, 250), "path_length/w", 1e-7);
  const auto large = [](const Tensor& z) {
    return repeat_interleave(repeat_interleave(generate(z), 32, 2), 32, 3) * numbers("n", {512, 512});
  };
  const auto squares = [](const Tensor& a, const Tensor& b) { return mean(square(a - b), {1, 2, 3}); };
  expect_golden(path_length({.crop = true}, large, squares, 3), "path_length/crop", 1e-7);
}

}  // namespace
}  // namespace gradus::models
