// nn::summary, which runs a network on the meta device, against known parameters and FLOPs and the peak
// memory of real runs; and that it allocates and changes nothing.
#include "gradus/nn/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/gradus.h"
#include "gradus/models/mnist_net.h"

namespace gradus::nn {
namespace {

using testing::HasSubstr;

// FLOPs of MnistNet's products, for a batch of kN: 2 for each multiply-add.
constexpr int64_t kN = 64;
constexpr int64_t kConv1 = 2 * kN * 32 * 26 * 26 * 9, kConv2 = 2 * kN * 64 * 24 * 24 * 32 * 9;
constexpr int64_t kFc1 = 2 * kN * 9216 * 128, kFc2 = 2 * kN * 128 * 10;

TEST(Summary, CountsParametersAndFlops) {
  models::MnistNet net;
  const Summary s = summary(net, {kN, 1, 28, 28});
  EXPECT_EQ(s.parameters, 1199882);
  EXPECT_EQ(s.parameter_bytes, 4 * 1199882);
  EXPECT_EQ(s.forward_flops, kConv1 + kConv2 + kFc1 + kFc2);
  // Backward takes each product twice, but for the gradient of the input.
  EXPECT_EQ(s.training_flops, 3 * s.forward_flops - kConv1);
}

TEST(Summary, NamesEveryCallWithItsOutput) {
  models::MnistNet net;
  const Summary s = summary(net, {kN, 1, 28, 28});
  std::vector<std::string> paths;
  for (const LayerCall& c : s.calls) paths.push_back(c.path);
  EXPECT_THAT(paths, testing::ElementsAre("", "conv1", "conv2", "dropout1", "fc1", "dropout2", "fc2"));
  EXPECT_EQ(to_string(s.calls[2].output), to_string(Shape{kN, 64, 24, 24}));
  EXPECT_EQ(s.calls[2].flops, kConv2);
  EXPECT_EQ(s.calls[0].flops, s.forward_flops);
  const std::string text = to_string(s);
  EXPECT_THAT(text, HasSubstr("conv2 (Conv2d)"));
  EXPECT_THAT(text, HasSubstr("1,199,882 parameters"));
}

// The peak of live bytes during `f`, beyond those live before.
template <class F> int64_t peak_of(F f) {
  const int64_t before = memory_stats().live_bytes;
  reset_peak_memory();
  f();
  return memory_stats().peak_bytes - before;
}

TEST(Summary, PredictsThePeakMemory) {
  models::MnistNet net;
  const Summary s = summary(net, {kN, 1, 28, 28});
  const int64_t weights = s.parameter_bytes;
  const auto inference = [&] {
    net.eval();
    net(randn({kN, 1, 28, 28}));
  };
  const auto training = [&] {
    net.train();
    GradManager gm;
    gm.attach(net.parameters());
    auto recording = gm.record();
    gm.backward(sum(net(randn({kN, 1, 28, 28}))));
    for (const Tensor& p : net.parameters()) p.set_grad({});
  };
  inference(), training();  // reordered weights are cached from here on
  const double real_inference = double(weights + peak_of(inference));
  const double real_training = double(weights + peak_of(training));
  // Scratch memory of kernels comes on top.
  EXPECT_NEAR(double(s.inference_peak_bytes) / real_inference, 1, 0.1);
  EXPECT_NEAR(double(s.training_peak_bytes) / real_training, 1, 0.1);
}

TEST(Summary, AllocatesNothingAndLeavesTheNetworkAsItWas) {
  models::MnistNet net;
  net.fc1.eval();
  const Tensor weight = net.conv1.weight;
  const std::vector<float> values = weight.to_vector<float>();
  const int64_t peak = peak_of([&] { summary(net, {4096, 1, 28, 28}); });
  EXPECT_LT(peak, 1 << 16);
  EXPECT_TRUE(net.conv1.weight.is_same(weight));
  EXPECT_EQ(weight.to_vector<float>(), values);
  EXPECT_TRUE(net.is_training());
  EXPECT_FALSE(net.fc1.is_training());
  EXPECT_EQ(memory_stats({DeviceType::kMeta}).live_bytes, 0);
}

TEST(Summary, TakesANetworkWithoutMemory) {
  Context context = Context::current().snapshot();
  context.device = {DeviceType::kMeta};
  const ContextScope scope(context);
  int64_t bytes = 0;
  const int64_t peak = peak_of([&] {
    const auto net = std::make_unique<models::MnistNet>();
    bytes = summary(*net, {kN, 1, 28, 28}).parameter_bytes;
  });
  EXPECT_EQ(bytes, 4 * 1199882);
  EXPECT_LT(peak, 1 << 16);
}

TEST(Summary, PassesOnTheNetworksErrors) {
  models::MnistNet net;
  net.fc2.eval();
  EXPECT_THROW(summary(net, {kN, 3, 28, 28}), ShapeError);
  EXPECT_TRUE(net.is_training());
  EXPECT_FALSE(net.fc2.is_training());
  EXPECT_FALSE(net.conv1.weight.device().type == DeviceType::kMeta);
}

}  // namespace
}  // namespace gradus::nn
