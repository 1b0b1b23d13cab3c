// Failures of a process's first CUDA calls, unusable devices, and a device lost by a sticky error, on the
// emulator. Each runs in a child process. Errors name the cause, and the CPU still trains.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/cuda/cublas/cublaslt.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tests/cuda/faults/child.h"
#include "gradus/tests/cuda/faults/training_step.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"

namespace gradus {
namespace {

[[maybe_unused]] const bool is_small = (cuda::emulated::set_devices(1, size_t(64) << 20), true);

// Expects f to throw an E whose text has all of these words.
template <class E> void expect_error(const std::function<void()>& f, const std::vector<std::string>& words) {
  try {
    f();
    ADD_FAILURE() << "no error";
  } catch (const E& e) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " is not in: " << e.what();
  }
}

void expect_trains(Device device) {
  const Expected expected(4, 4);
  Training training(device, 4, 4);
  EXPECT_TRUE(is_near(training.step(), expected.read[0]));
  EXPECT_TRUE(is_near(training.parameters(), expected.parameters[1]));
}

// How often a first step on the device calls each function.
std::map<std::string, int64_t> calls_of_first_step() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  EXPECT_TRUE(holds_in_child([&] {
    expect_trains(kCuda);
    std::string text;
    for (const auto& [function, count] : cuda::emulated::take_calls())
      text += std::string(function) + " " + std::to_string(count) + "\n";
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }));
  close(ends[1]);
  std::map<std::string, int64_t> calls;
  FILE* const in = fdopen(ends[0], "r");
  char function[64];
  for (long long count; std::fscanf(in, "%63s %lld", function, &count) == 2;) calls[function] = count;
  std::fclose(in);
  return calls;
}

TEST(FirstCalls, MayFailAndWorkLater) {
  struct Case {
    const char* function;
    int status;
    std::vector<std::string> words;
    int64_t times = 1;  // number of calls that fail
  };
  const Case cases[] = {
      {"cudaGetDeviceCount",
       cudaErrorInitializationError,
       {"cudaGetDeviceCount failed", "(cudaErrorInitializationError)"}},
      {"cudaGetDeviceProperties", cudaErrorInvalidDevice, {"cudaGetDeviceProperties failed on cuda:0"}},
      {"cudaSetDevice",
       cudaErrorDevicesUnavailable,
       {"cudaSetDevice failed on cuda:0", "busy or unavailable"}},
      {"cudaStreamCreateWithFlags",
       cudaErrorMemoryAllocation,
       {"cudaStreamCreateWithFlags failed on cuda:0"}},
      {"cudaMallocHost",
       cudaErrorMemoryAllocation,
       {"[cross_entropy] cudaMallocHost failed on cuda:0: out of memory", "i64[2] cuda:0"},
       100},  // copies from the host go on without
      {"cublasLtCreate",
       CUBLAS_STATUS_ALLOC_FAILED,
       {"[linear] cublasLtCreate failed: CUBLAS_STATUS_ALLOC_FAILED", "for f32[2,3] cuda:0"}},
      {"cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED, {"CUBLAS_STATUS_NOT_INITIALIZED"}},
      {"cudnnCreate",
       CUDNN_STATUS_NOT_INITIALIZED,
       {"[conv2d] cudnnCreate failed: CUDNN_STATUS_NOT_INITIALIZED", "x f32[2,1,4,4] cuda:0"}},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(holds_in_child([&] {
      cuda::emulated::fail_call_of(c.function, 0, c.status, c.times);
      expect_error<DeviceFailure>([] { Training(kCuda, 4, 4).step(); }, c.words);
      expect_trains(kCPU);
      cuda::emulated::fail_call(-1, cudaSuccess);
      expect_trains(kCuda);
    })) << c.function;
  }
}

TEST(FirstCalls, DevicesThatCannotBeUsed) {
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[] { cuda::emulated::set_driver_version(0); },
       "there is no CUDA device: no NVIDIA driver is installed"},
      {[] { cuda::emulated::set_driver_version(12080); },
       "there is no CUDA device: the NVIDIA driver is for CUDA 12.8, and this program needs one for CUDA "
       "13.0"},
      {[] { cuda::emulated::fail_call_of("cudaGetDeviceCount", 0, cudaErrorNoDevice, 100); },
       "there is no CUDA device: the NVIDIA driver finds none"},
      {[] { cuda::emulated::set_compute_capability(0, 7, 5); },
       "cuda:0 (Gradus emulated device) has compute capability 7.5, and kernels need 8.0 at least"}};
  for (const auto& [prepare, words] : cases) {
    EXPECT_TRUE(holds_in_child([&] {
      prepare();
      expect_error<DeviceError>([] { zeros({2}, {.device = kCuda}); }, {"[zeros] " + words});
      expect_error<DeviceError>([] { to(full({2}, 1), kCuda); }, {words});
      expect_error<DeviceError>([] { SmallNet().to(kCuda); }, {words});
      expect_error<DeviceError>([] { Stream::create(kCuda); }, {words});
      expect_error<DeviceError>([] { synchronize(kCuda); }, {words});
      expect_trains(kCPU);
    })) << words;
  }
}

// The program can train on the other device.
TEST(FirstCalls, OneOfTwoDevicesCannotBeUsed) {
  EXPECT_TRUE(holds_in_child([] {
    cuda::emulated::set_devices(2, size_t(64) << 20);
    cuda::emulated::set_compute_capability(0, 7, 0);
    expect_error<DeviceError>([] { zeros({2}, {.device = kCuda}); },
                              {"[zeros] cuda:0", "has compute capability 7.0"});
    expect_trains({DeviceType::kCUDA, 1});
  }));
}

void expect_lost() {
  const Tensor x = full({3}, 2);
  expect_error<DeviceFailure>([&] { to(x, kCuda); },
                              {"cuda:0", "(cudaErrorIllegalAddress)", "the device is lost"});
  expect_error<DeviceFailure>([] { synchronize(kCuda); }, {"the device is lost for this process"});
  expect_trains(kCPU);
}

// The device is lost at every third call of each runtime function.
TEST(LostDevice, LeavesTheCpu) {
  const std::map<std::string, int64_t> calls = calls_of_first_step();
  EXPECT_GE(calls.size(), 25u);
  int64_t met = 0;
  for (const auto& [function, count] : calls) {
    // These three functions need no working device; libraries detect a lost device through the runtime.
    const bool finds_out = (function.starts_with("cuda") || function == "launch") &&
                           function != "cudaSetDevice" && function != "cudaGetDeviceCount" &&
                           function != "cudaGetDeviceProperties";
    for (int64_t n = 0; finds_out && n < count && !HasFailure(); n += 3, ++met) {
      EXPECT_TRUE(holds_in_child([&, &function = function] {
        cuda::emulated::fail_call_of(function, n, cudaErrorIllegalAddress);
        Tensor kept;
        try {
          Training training(kCuda, 4, 4);
          kept = full({3}, 2, {.device = kCuda});
          training.step();
          training.parameters();
        } catch (const DeviceFailure& e) {
          EXPECT_NE(std::string(e.what()).find("the device is lost for this process"), std::string::npos)
              << e.what();
        }
        expect_lost();
      })) << "lost at call "
          << n << " of " << function;
    }
  }
  EXPECT_GE(met, 30);
}

// No status of the libraries says that the device is lost; the error does.
TEST(LostDevice, IsNamedWhereALibraryFails) {
  EXPECT_TRUE(holds_in_child([] {
    const std::vector<std::string> lost = {"the device is lost for this process", "(cudaErrorLaunchFailure)"};
    const Tensor a = ones({2, 2}, {.device = kCuda}), image = ones({1, 1, 4, 4}, {.device = kCuda});
    const auto multiply = [&] { raw::matmul(a, a); };
    raw::ConvGeometry geometry;
    geometry.stride = geometry.dilation = Dims::filled(2, 1), geometry.padding = Dims::filled(2, 0);
    const auto convolve = [&] { raw::conv("conv2d", image, image, {}, geometry); };
    multiply(), convolve();
    cuda::emulated::fail_call_of("cublasLtMatmul", 0, CUBLAS_STATUS_EXECUTION_FAILED);
    try {
      multiply();
      ADD_FAILURE() << "no error";
    } catch (const cuda::CublasError& e) {
      EXPECT_EQ(std::string(e.what()).find("lost"), std::string::npos) << e.what();
    }
    multiply();
    cuda::emulated::lose_device(cudaErrorLaunchFailure);
    expect_error<cuda::CublasError>(multiply, lost);
    expect_error<cuda::CudnnError>(convolve, lost);
    expect_trains(kCPU);
  }));
}

// Tasks queued on a stream of a lost device are dropped; waiting for them throws.
TEST(LostDevice, TasksOfItsStreamsAreDropped) {
  EXPECT_TRUE(holds_in_child([] {
    const Stream stream = Stream::create(kCuda), worker = Stream::create(Device::parse("cpu:1"));
    const Tensor x = full({1000}, 1, {.device = kCuda});
    stream.enqueue([x] {});
    const Event event = Event::record(stream);
    cuda::emulated::lose_device(cudaErrorIllegalAddress);
    const std::vector<std::string> lost = {"the device is lost for this process"};
    expect_error<cuda::CudaError>([&] { stream.enqueue([x] {}); }, lost);
    expect_error<cuda::CudaError>([&] { stream.synchronize(); }, lost);
    expect_error<cuda::CudaError>([&] { event.synchronize(); }, lost);
    expect_error<cuda::CudaError>([&] { event.done(); }, lost);
    worker.wait(event);
    expect_error<cuda::CudaError>([&] { worker.synchronize(); }, lost);
    expect_lost();
  }));
}

}  // namespace
}  // namespace gradus
