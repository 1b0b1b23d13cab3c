// A training step takes no more memory than it must.
#include <gtest/gtest.h>

#include "gradus/gradus.h"
#include "gradus/models/mnist_net.h"

namespace gradus {
namespace {

TEST(MnistMemory, AStepTakesLittleMoreThanWhatItMustKeep) {
  models::MnistNet net;
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
  // Parameters, optimizer state and what the rules saved are alive after the forward; gradients come on top.
  int64_t needed = 0;
  reset_peak_memory();
  step(&needed);
  for (const Tensor& p : net.parameters()) needed += allocation_size(p.nbytes());
  EXPECT_LE(static_cast<double>(memory_stats().peak_bytes), 1.15 * static_cast<double>(needed));
}

}  // namespace
}  // namespace gradus
