// Peak memory of training steps: little more than parameters, state, activations and gradients; ResNets with
// activation checkpointing need less and give the same bits.
#include <gtest/gtest.h>

#include "gradus/gradus.h"
#include "gradus/models/mnist_net.h"
#include "gradus/models/resnet.h"

namespace gradus::models {
namespace {

TEST(MnistMemory, AStepTakesLittleMoreThanWhatItMustKeep) {
  MnistNet net;
  const Tensor x = randn({64, 1, 28, 28}), y = randint(0, 10, {64});
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.01, .momentum = 0.9});
  auto step = [&](int64_t* after_forward) {
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(x), y);
    if (after_forward) *after_forward = memory_stats().live_bytes;
    gm.backward(loss);
    opt.step().clear_grad();
  };
  step(nullptr);  // the optimizer makes its state
  // Parameters, optimizer state and saved activations are alive after the forward; gradients come on top.
  int64_t needed = 0;
  reset_peak_memory();
  step(&needed);
  for (const Tensor& p : net.parameters()) needed += allocation_size(p.nbytes());
  EXPECT_LE(static_cast<double>(memory_stats().peak_bytes), 1.15 * static_cast<double>(needed));
}

struct Step {
  std::vector<std::vector<float>> grads;
  std::vector<std::vector<double>> buffers;
  float loss;
};

Step step(const char* name, bool checkpoint) {
  manual_seed(4);
  ResNet net(resnet(name, {.classes = 5, .checkpoint = checkpoint}));
  const Tensor x = randn({4, 3, 32, 32}), y = randint(0, 5, {4});
  int callbacks = 0;
  GradManager gm;
  gm.attach(net.parameters(), [&](const Tensor&, const Tensor& g) { return ++callbacks, g; });
  auto recording = gm.record();
  const Tensor loss = nn::cross_entropy(net(x), y);
  gm.backward(loss);
  Step s{{}, {}, loss.item<float>()};
  for (const Tensor& p : net.parameters()) s.grads.push_back(p.grad().to_vector<float>());
  for (const Tensor& b : net.buffers()) s.buffers.push_back(b.to_vector<double>());
  EXPECT_EQ(callbacks, int(s.grads.size())) << "each gradient is delivered once";
  return s;
}

TEST(ResNetCheckpoint, GivesTheSameBits) {
  for (const char* name : {"resnet50", "resnet20"}) {
    const Step plain = step(name, false), again = step(name, true);
    EXPECT_EQ(plain.loss, again.loss) << name;
    EXPECT_EQ(plain.grads, again.grads) << name;
    EXPECT_EQ(plain.buffers, again.buffers) << name;
  }
}

// Bytes that a training step takes beyond parameters and gradients, from nn::summary on the meta device.
int64_t activations(const char* name, bool checkpoint, const Shape& images) {
  Context context = Context::current().snapshot();
  context.device = {DeviceType::kMeta};
  const ContextScope scope(context);
  ResNet net(resnet(name, {.checkpoint = checkpoint}));
  const nn::Summary s = nn::summary(net, images);
  return s.training_peak_bytes - 2 * s.parameter_bytes;
}

TEST(ResNetCheckpoint, TakesLessThanHalfTheMemoryForActivations) {
  const Shape images{8, 3, 224, 224};
  for (const char* name : {"resnet50", "resnet152"}) {
    const int64_t plain = activations(name, false, images), again = activations(name, true, images);
    RecordProperty(name, std::to_string(plain >> 20) + " MiB, again " + std::to_string(again >> 20) + " MiB");
    EXPECT_LT(again, plain / 2) << name << ": " << (again >> 20) << " of " << (plain >> 20) << " MiB";
  }
}

}  // namespace
}  // namespace gradus::models
