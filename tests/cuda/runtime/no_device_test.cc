// A program linked with the CUDA runtime on a machine without a GPU.
#include <gtest/gtest.h>

#include <string>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");

TEST(NoDevice, ErrorsSayWhyAndTheCpuGoesOn) {
  try {
    internal::runtime_of(kCuda);
    GTEST_SKIP() << "there is a GPU";
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("there is no CUDA device: "), std::string::npos) << e.what();
  }
  const Tensor x = full({3}, 2);
  EXPECT_THROW(zeros({3}, {.device = kCuda}), DeviceError);
  EXPECT_THROW(raw::to(x, kCuda), DeviceError);
  EXPECT_THROW(tensor(std::vector<float>{1}, {1}, kCuda), DeviceError);
  EXPECT_THROW(scalar(1, {.device = kCuda}), DeviceError);
  EXPECT_THROW(Stream::of(kCuda), DeviceError);
  EXPECT_THROW(synchronize(kCuda), DeviceError);
  EXPECT_THROW(memory_stats(kCuda), DeviceError);
  EXPECT_EQ(cuda_device_count(), 0);
  EXPECT_THROW(device_properties(kCuda), DeviceError);
  EXPECT_EQ(raw::clone(x).to_vector<float>(), std::vector<float>(3, 2));
}

}  // namespace
}  // namespace gradus
