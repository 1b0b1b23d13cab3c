// Errors of CUDA devices on the emulator: missing devices, fork, ops without a kernel; and each runtime call
// of some work fails in turn: the error names call and device, nothing leaks, and both devices work on.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tests/ops/values.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");
const Device kSecond = Device::parse("cuda:1");

TEST(CudaErrors, DevicesThatAreNotThere) {
  const auto fails = [](int16_t index, const char* part) {
    try {
      zeros({2}, {.device = {DeviceType::kCUDA, index}});
      ADD_FAILURE() << "no error";
    } catch (const DeviceError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_EQ(e.op(), "zeros");
    }
  };
  fails(2, "cuda:2 does not exist: there are 2 devices");
  fails(-1, "cuda:-1 does not exist");
  fails(64, "cuda:64 does not exist");
  EXPECT_THROW(Stream::create({DeviceType::kCUDA, 5}), DeviceError);
  EXPECT_THROW(synchronize({DeviceType::kCUDA, 5}), DeviceError);
  EXPECT_THROW(device_properties({DeviceType::kCUDA, 2}), DeviceError);
  EXPECT_THROW(device_properties(kCPU), DeviceError);
}

TEST(CudaErrors, DevicesThatAreThere) {
  EXPECT_EQ(cuda_device_count(), 2);
  const DeviceProperties p = device_properties(kSecond);
  EXPECT_EQ(p.name, "Gradus emulated device");
  EXPECT_GT(p.memory_bytes, 0);
  EXPECT_GE(p.major, 8);
  EXPECT_GT(p.multiprocessors, 0);
}

// CUDA does not work in a child of fork().
TEST(CudaErrors, DevicesOfTheParent) {
  const Tensor x = zeros({2}, {.device = kCuda});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto is_left = [](auto use) {
      try {
        use();
      } catch (const StateError& e) {
        return std::string(e.what()).find("belongs to the process") != std::string::npos;
      }
      return false;
    };
    _exit(is_left([] { cuda_device_count(); }) && is_left([] { device_properties(kSecond); }) &&
                  is_left([] { zeros({2}, {.device = kCuda}); })
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CudaErrors, AnOpWithoutAKernelSaysWhatToDo) {
  const KernelSlot<void(const Tensor& out)> cpu_only("cpu_only", [](const Tensor&) {});
  try {
    cpu_only(zeros({2}, {.device = kCuda}));
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& e) {
    EXPECT_STREQ(e.what(), "[cpu_only] has no kernel for cuda:0 yet: compute it on the CPU, to(x, kCPU)");
  }
}

// Allocates, launches, copies, waits, on two streams and two devices.
double work() {
  const Stream side = Stream::create(kCuda);
  Tensor x = full({1000}, 2, {.device = kCuda}), y = raw::clone(x);
  side.wait(Event::record(current_stream(kCuda)));
  Tensor z;
  {
    const StreamScope scope(side);
    z = raw::to(y, DType::kF64);
    y = {};
    side.enqueue([z] {});
  }
  current_stream(kCuda).wait(Event::record(side));
  const Tensor there = raw::to(z, kSecond);
  const double value = view_as_strided(raw::to(there, kCPU), {}, {}, 999).item<double>();
  synchronize(kCuda);
  x = {}, z = {};
  empty_cache(kCuda);
  return value;
}

TEST(CudaErrors, EachCallMayFail) {
  EXPECT_EQ(work(), 2);
  empty_cache(kSecond);
  cuda::emulated::take_calls();
  EXPECT_EQ(work(), 2);
  empty_cache(kSecond);
  int64_t count = 0;
  for (const auto& [function, n] : cuda::emulated::take_calls()) count += n;
  EXPECT_GE(count, 50);
  std::set<std::string> calls;
  for (int64_t n = 0; n < count; ++n) {
    cuda::emulated::fail_call(n, cudaErrorInvalidValue);
    try {
      EXPECT_EQ(work(), 2);
      bool is_left = false;  // a call that only frees may fail without an exception
      for (const Device d : {kCuda, kSecond}) is_left = is_left || memory_stats(d).live_bytes > 0;
      EXPECT_FALSE(is_left) << "call " << n;
    } catch (const cuda::CudaError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("failed on cuda:"), std::string::npos) << text;
      EXPECT_NE(text.find("(cudaErrorInvalidValue)"), std::string::npos) << text;
      const size_t end = text.find(" failed"), begin = text.rfind(' ', end - 1) + 1;
      calls.insert(text.substr(begin, end - begin));
    }
    cuda::emulated::fail_call(-1, cudaSuccess);
    synchronize(kCuda), synchronize(kSecond);
    empty_cache(kCuda), empty_cache(kSecond);
    for (int d = 0; d < 2; ++d)
      EXPECT_EQ(cuda::emulated::memory_of(d)->blocks(), 0u) << "after a failure of call " << n;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  for (const char* call :
       {"cudaMalloc", "launch", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaEventRecord",
        "cudaStreamWaitEvent", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaFree",
        "cudaMemcpyPeerAsync", "cudaLaunchHostFunc", "cudaDeviceSynchronize"})
    EXPECT_TRUE(calls.contains(call)) << call << " never failed";
  EXPECT_EQ(work(), 2);
}

// A copy is queued, then recording its event fails. Its block must not be reused before the copy has run.
TEST(CudaErrors, ACopyThatNobodyCanWaitForKeepsItsBlock) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    cuda::emulated::set_seed(seed);
    const Tensor x = full({1000}, 1, {.device = kCuda});
    synchronize(kCuda);
    cuda::emulated::fail_call_of("cudaEventRecord", 1, cudaErrorInvalidValue);
    EXPECT_THROW(raw::to(x, kSecond), cuda::CudaError);
    const Tensor y = full({1000}, 2, {.device = kSecond});
    synchronize(kCuda), synchronize(kSecond);
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1000, 2)) << "seed " << seed;
  }
}

// The last test: no call of CUDA works any more in this process.
TEST(CudaErrors, ZLostDeviceLeavesTheCpu) {
  const Tensor x = full({3}, 2, {.device = kCuda});
  cuda::emulated::fail_call(0, cudaErrorIllegalAddress);
  EXPECT_THROW(raw::clone(x), cuda::CudaError);
  EXPECT_THROW(raw::to(x, kCPU), cuda::CudaError);
  EXPECT_THROW(synchronize(kCuda), cuda::CudaError);
  EXPECT_EQ(raw::clone(full({3}, 2)).to_vector<float>(), std::vector<float>(3, 2));
}

}  // namespace
}  // namespace gradus
