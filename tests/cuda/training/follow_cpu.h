// Trains a network on the CPU and on cuda:0, from the same weights and batches, and compares the losses: in f32,
// in f64, and in mixed precision with a GradScaler.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/nn/layer.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/random.h"

namespace gradus {

inline constexpr Device kCuda{DeviceType::kCUDA};

// One dtype for all, or mixed precision with a GradScaler.
struct Precision {
  DType dtype = DType::kF32;  // of parameters and inputs
  bool is_mixed = false;      // products and convolutions in bf16
  double tolerance = 1e-4;    // of the losses

  Autocast scope() const { return autocast(DType::kBF16, {.enabled = is_mixed}); }
  DType computes_in() const { return is_mixed ? DType::kBF16 : dtype; }
};
// A bf16 number that is rounded otherwise differs by 2^-8, 0.4 %. A loss is a mean of such errors, over all layers.
inline constexpr Precision kF32, kF64{.dtype = DType::kF64, .tolerance = 1e-10},
    kMixed{.is_mixed = true, .tolerance = 2e-2};

using Losses = std::vector<double>;

// Expects losses within `tolerance` of the CPU's: relative to the CPU's loss, or absolute if that is below 1, since
// the losses of critics can be near 0.
inline void expect_follow(const std::function<Losses(Device)>& train, double tolerance) {
  const Losses expected = train(kCPU), actual = train(kCuda);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << "loss " << i;
}
inline void expect_follow(Losses (*train)(Precision, Device), Precision precision) {
  expect_follow([&](Device device) { return train(precision, device); }, precision.tolerance);
}

// Normally distributed numbers, and classes: the same on each device.
struct Samples {
  Tensor x, target;
  Samples(const Shape& shape, int64_t classes, int step, DType dtype, Device device) {
    manual_seed(1000 + uint64_t(step));
    x = raw::to(raw::to(randn(shape), dtype), device);
    target = raw::to(randint(classes, {shape[0]}), device);
  }
};

// The backward passes and optimizer steps of a training, with one GradScaler for all its optimizers.
class Updates {
 public:
  explicit Updates(Precision precision) : scaler_({.enabled = precision.is_mixed}) {}

  // Within a recording of gm. Expects that the optimizer steps unless the loss is infinite or NaN.
  void update(GradManager& gm, optim::Optimizer& opt, const Tensor& loss,
              const optim::ScaledStepOptions& options = {}) {
    scaler_.backward(gm, loss);
    losses.push_back(loss.item<double>());
    const bool stepped = scaler_.step(opt, options);
    EXPECT_EQ(stepped, std::isfinite(losses.back()));
    opt.clear_grad();
  }

  Losses losses;  // of all updates

 private:
  optim::GradScaler scaler_;
};

// Trains a classifier of inputs of this shape [N,...] with SGD, on batches that depend on the step alone. Dropout must
// be off: it draws from the generator, which each batch seeds.
inline Losses classify(nn::Layer& net, const Shape& shape, int64_t classes, int steps, Precision precision,
                       Device device) {
  net.to(precision.dtype).to(device);
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.01, .momentum = 0.9});
  Updates updates(precision);
  for (int step = 0; step < steps; ++step) {
    const Samples samples(shape, classes, step, precision.dtype, device);
    auto recording = gm.record();
    const auto amp = precision.scope();
    const Tensor logits = net(samples.x);
    EXPECT_EQ(logits.dtype(), precision.computes_in());
    updates.update(gm, opt, nn::cross_entropy(logits, samples.target));
  }
  return updates.losses;
}

}  // namespace gradus
