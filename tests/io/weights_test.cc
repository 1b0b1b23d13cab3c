// save_weights and load_weights of a whole module: conversion, excepted parameters, and errors that list
// every mismatch.
#include "gradus/io/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/models/resnet.h"
#include "gradus/tests/io/testing.h"
#include "gradus/tests/support/error.h"

namespace gradus::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

models::ResNetOptions small(int64_t classes) { return models::cifar_resnet(8, {.classes = classes}); }

void expect_equal(const nn::StateDict& a, const nn::StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_EQ(a[i].second.to_vector<double>(), b[i].second.to_vector<double>()) << a[i].first;
  }
}

TEST(Weights, ComeBack) {
  const Scratch folder;
  const std::string path = folder / "weights.safetensors";
  models::ResNet net(small(3)), other(small(3));
  net(randn({2, 3, 32, 32}));  // running statistics, and a count of batches
  save_weights(net, path, {{"epoch", "3"}});
  EXPECT_EQ(load_safetensors(path).metadata.at("epoch"), "3");
  const nn::LoadReport report = load_weights(other, path);
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty() && report.kept.empty());
  expect_equal(net.state_dict(), other.state_dict());
}

TEST(Weights, OfHalfPrecisionAreConverted) {
  const Scratch folder;
  const std::string path = folder / "half.safetensors";
  models::ResNet net(small(3)), other(small(3));
  net.to(DType::kF16);
  save_weights(net, path);
  load_weights(other, path);
  EXPECT_EQ(other.parameters()[0].dtype(), DType::kF32);
  EXPECT_EQ(other.buffers()[2].dtype(), DType::kI64);  // num_batches_tracked
  expect_equal(net.state_dict(), other.state_dict());
}

TEST(Weights, OfAnotherHeadAreKeptWhereTheUserSaysSo) {
  const Scratch folder;
  const std::string path = folder / "head.safetensors";
  const models::ResNet net(small(10));
  save_weights(net, path);
  models::ResNet other(small(3));
  const std::vector<float> head = other.state_dict().back().second.to_vector<float>();
  const std::string text = error_of<ValueError>([&] { load_weights(other, path); });
  EXPECT_THAT(text, AllOf(HasSubstr(path), HasSubstr("fc.weight: expected f32[3,64]"),
                          HasSubstr("got f32[10,64]"), HasSubstr("fc.bias"), HasSubstr("except")));
  // Without strict, too, a differing shape is an error unless `except` names it.
  EXPECT_THROW(load_weights(other, path, {.strict = false}), ValueError);

  const nn::LoadReport report = load_weights(other, path, {.except = {"fc"}});
  EXPECT_THAT(report.kept, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_EQ(other.state_dict().back().second.to_vector<float>(), head);
  EXPECT_EQ(other.state_dict()[0].second.to_vector<float>(), net.state_dict()[0].second.to_vector<float>());
  EXPECT_ERROR(ValueError, load_weights(other, path, {.except = {"head"}}), "ResNet has no 'head'", path);
  EXPECT_THROW(load_weights(other, path, {.except = {"f"}}), ValueError);  // whole names only
}

TEST(Weights, ThatDoNotFitAreListedAllAtOnce) {
  const Scratch folder;
  const std::string path = folder / "misfit.safetensors";
  models::ResNet net(small(3));
  NamedTensors tensors = net.state_dict();
  tensors.erase(tensors.begin());               // conv1.weight
  tensors.emplace_back("fc.scale", ones({3}));  // unknown
  for (auto& [name, t] : tensors) {
    if (name == "bn1.bias") t = zeros({7});
    if (name == "layer1.0.bn2.num_batches_tracked") t = zeros({});
  }
  save_safetensors(path, tensors);
  const std::vector<float> before = net.state_dict()[1].second.to_vector<float>();
  const std::string text = error_of<ValueError>([&] { load_weights(net, path); });
  EXPECT_THAT(text,
              AllOf(HasSubstr(path), HasSubstr("missing"), HasSubstr("conv1.weight"), HasSubstr("unexpected"),
                    HasSubstr("fc.scale"), HasSubstr("bn1.bias: expected f32[16]"),
                    HasSubstr("layer1.0.bn2.num_batches_tracked: expected i64")));
  EXPECT_EQ(net.state_dict()[1].second.to_vector<float>(), before);
  const nn::LoadReport report =
      load_weights(net, path, {.strict = false, .except = {"bn1.bias", "layer1.0.bn2.num_batches_tracked"}});
  EXPECT_THAT(report.missing, ElementsAre("conv1.weight"));
  EXPECT_THAT(report.unexpected, ElementsAre("fc.scale"));
}

TEST(Weights, OfAMissingFileNameIt) {
  models::ResNet net(small(3));
  EXPECT_ERROR(FileError, load_weights(net, "no/such.safetensors"), "no/such.safetensors");
}

}  // namespace
}  // namespace gradus::io
