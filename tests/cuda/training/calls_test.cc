// What a training asks of the device in a step, from the third on: nothing to wait for, no memory, no copy
// from or to the host, and few launches.
#include <gtest/gtest.h>

#include <iostream>

#include "gradus/tensor/cuda/host_calls.h"
#include "gradus/tests/cuda/training/steps.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};

// Products and convolutions of the libraries are launches, too, and so are copies within the device.
void expect_few_calls(int64_t most_launches, const Step& step) {
  step(), step();
  cuda::HostCallScope calls;
  step();
  const cuda::HostCalls all = calls.total();
  EXPECT_EQ(all.waits, 0);
  EXPECT_EQ(all.allocations, 0);
  EXPECT_EQ(all.pageable_copies, 0);
  EXPECT_EQ(all.copies_to_device, 0);
  EXPECT_EQ(all.copies_to_host, 0);
  EXPECT_LE(all.launches + all.library_calls + all.copies_on_device, most_launches);
  EXPECT_GT(all.library_calls, 0);
  std::cout << calls.table();  // who it was, and the figures of docs/cuda.md
}

TEST(Calls, Mnist) { expect_few_calls(32, example("MNIST's network").make({kCuda, 2, 28})); }

TEST(Calls, ResNet18) { expect_few_calls(200, example("ResNet-18").make({kCuda, 2, 32})); }

TEST(Calls, Dcgan) { expect_few_calls(120, example("DCGAN").make({kCuda, 8, 16, false, 8})); }

}  // namespace
}  // namespace gradus
