// CUDA calls of the third training step, which is like all later ones: no wait, no allocation, no copy from
// or to the host, and at most as many calls as docs/cuda.md says. Prints the calls per op.
#include <gtest/gtest.h>

#include <iostream>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/optim/schedules/lr_schedule.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/cuda/training/steps.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};

// Returns the calls of the third step: launches, library calls, and copies within the device.
int64_t count_calls(const Step& step) {
  step(), step();
  cuda::HostCallScope calls;
  step();
  const cuda::HostCalls all = calls.total();
  EXPECT_EQ(all.waits, 0);
  EXPECT_EQ(all.allocations, 0);
  EXPECT_EQ(all.pageable_copies, 0);
  EXPECT_EQ(all.copies_to_device, 0);
  EXPECT_EQ(all.copies_to_host, 0);
  EXPECT_GT(all.library_calls, 0);
  std::cout << calls.table();  // calls per op, and the figures of docs/cuda.md
  return all.launches + all.library_calls + all.copies_on_device;
}
void expect_few_calls(int64_t most, const Step& step) { EXPECT_LE(count_calls(step), most); }

// make takes StepOptions: device, batch, size, bf16, width.
TEST(Calls, Mnist) { expect_few_calls(28, example("MNIST's network").make({kCuda, 2, 28})); }

TEST(Calls, Dcgan) { expect_few_calls(57, example("DCGAN").make({kCuda, 8, 16, false, 8})); }

TEST(Calls, DcganOf64Pixels) { expect_few_calls(100, example("DCGAN").make({kCuda, 2, 64, false, 4})); }

// With 9 images each batch norm has so many rows that it takes two launches in each direction, as in real
// training.
TEST(Calls, DcganOfMoreImages) { expect_few_calls(120, example("DCGAN").make({kCuda, 9, 64, false, 4})); }

// In mixed precision, with a GradScaler that decides on the device.
template <class Opt, class Options> void expect_few_calls_of_scaled(Options options, int64_t most) {
  models::MnistNet net;
  const Tensor x = randn({2, 1, 28, 28}, {.device = kCuda}), target = randint(10, {2}, {DType::kI64, kCuda});
  Opt opt(net.to(kCuda).parameters(), options);
  GradManager gm;
  gm.attach(net.parameters());
  optim::GradScaler scaler;
  expect_few_calls(most, [&] {
    auto recording = gm.record();
    const auto amp = autocast(DType::kBF16);
    scaler.backward(gm, nn::cross_entropy(net(x), target));
    scaler.step(opt, {.clip_norm = 10.0});
    opt.clear_grad();
  });
}

TEST(Calls, ScaledMnist) {
  expect_few_calls_of_scaled<optim::SGD>(optim::SGDOptions{.lr = 0.01, .momentum = 0.9}, 44);
  expect_few_calls_of_scaled<optim::Adam>(optim::AdamOptions{}, 44);
  expect_few_calls_of_scaled<optim::AdamW>(optim::AdamWOptions{}, 44);
}

// With a learning rate that changes at each step, and is read on the device.
TEST(Calls, CapturableMnist) {
  models::MnistNet net;
  const Tensor x = randn({2, 1, 28, 28}, {.device = kCuda}), target = randint(10, {2}, {DType::kI64, kCuda});
  optim::Adam opt(net.to(kCuda).parameters());
  opt.make_capturable();
  optim::ExponentialLR schedule(opt, {.gamma = 0.9});
  GradManager gm;
  gm.attach(net.parameters());
  expect_few_calls(30, [&] {
    auto recording = gm.record();
    gm.backward(nn::cross_entropy(net(x), target));
    opt.step().clear_grad();
    schedule.step();
  });
}

int64_t calls_of_gpt(int64_t layers, bool is_bf16) {
  models::GPT net(
      {.vocabulary = 11, .context = 8, .layers = layers, .heads = 2, .width = 16, .dropout = 0.1});
  const Tensor tokens = randint(11, {2, 8}, {DType::kI64, kCuda});
  optim::AdamW opt(net.to(kCuda).parameters());
  GradManager gm;
  gm.attach(net.parameters());
  return count_calls([&] {
    auto recording = gm.record();
    const auto amp = autocast(DType::kBF16, {.enabled = is_bf16});
    gm.backward(nn::cross_entropy(flatten(net(tokens), 0, 1), flatten(tokens)));
    opt.step().clear_grad();
  });
}

// Those that one more layer adds.
TEST(Calls, LayerOfGpt) {
  EXPECT_LE(calls_of_gpt(3, false) - calls_of_gpt(2, false), 32);
  EXPECT_LE(calls_of_gpt(3, true) - calls_of_gpt(2, true), 38);
}

// Last, because it is the largest: the emulated device runs queued work later, and the end of the program
// drops what is still queued.
TEST(Calls, ResNet18InBf16) { expect_few_calls(152, example("ResNet-18").make({kCuda, 2, 32, true})); }
TEST(Calls, ResNet18) { expect_few_calls(128, example("ResNet-18").make({kCuda, 2, 32})); }

}  // namespace
}  // namespace gradus
