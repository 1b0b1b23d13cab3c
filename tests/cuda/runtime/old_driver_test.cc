// A program linked with the CUDA runtime under a driver that is too old (old_driver.cc).
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/devices.h"

namespace gradus {
namespace {

TEST(OldDriver, ErrorsNameBothVersionsAndTheCpuGoesOn) {
  // The runtime's dlopen of libcuda.so.1 returns the library that is already open.
  ASSERT_NE(dlopen("tests/cuda/runtime/libcuda.so.1", RTLD_NOW), nullptr) << dlerror();
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  const Tensor x = full({3}, 2);
  for (int i = 0; i < 2; ++i) {
    try {
      raw::to(x, Device::parse("cuda:0"));
      ADD_FAILURE() << "no error";
    } catch (const DeviceError& e) {
      EXPECT_NE(std::string(e.what()).find("there is no CUDA device: the NVIDIA driver is for CUDA 12.8, and "
                                           "this program needs one for CUDA 13.0"),
                std::string::npos)
          << e.what();
    }
  }
  EXPECT_EQ(cuda_device_count(), 0);
  EXPECT_EQ(raw::clone(x).to_vector<float>(), std::vector<float>(3, 2));
}

}  // namespace
}  // namespace gradus
