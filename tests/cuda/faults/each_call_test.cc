// On the emulator, each call of the CUDA runtime, cuBLASLt and cuDNN in a training step fails in turn, with
// its possible statuses. The error is typed and names call, op, device and tensors; nothing leaks, a step is
// made wholly or not at all, and the same network trains on.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/cuda/cublas/cublaslt.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tests/cuda/faults/training_step.h"
#include "gradus/tools/cuda_emulator/call.h"

namespace gradus {
namespace {

using Statuses = std::vector<int>;

// Statuses that the manuals list for a function, except those that lose the device.
Statuses statuses_of(const std::string& function) {
  static const std::map<std::string_view, Statuses> known = {
      {"cudaMalloc", {cudaErrorInvalidValue, cudaErrorMemoryAllocation}},
      {"cudaSetDevice", {cudaErrorInvalidDevice, cudaErrorDevicesUnavailable, cudaErrorInitializationError}},
      {"cudaStreamCreateWithFlags", {cudaErrorInvalidValue, cudaErrorMemoryAllocation}},
      {"cudaStreamQuery", {cudaErrorNotReady, cudaErrorInvalidResourceHandle}},
      {"cudaEventQuery", {cudaErrorNotReady, cudaErrorInvalidValue}},
      {"cudaEventCreateWithFlags", {cudaErrorInvalidValue, cudaErrorMemoryAllocation}},
      {"cudaEventRecord", {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle}},
      {"cudaStreamWaitEvent", {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle}},
      {"cudaMemcpyAsync", {cudaErrorInvalidValue, cudaErrorInvalidMemcpyDirection}},
      {"cudaPointerGetAttributes", {cudaErrorInvalidDevice, cudaErrorInvalidValue}},
      {"launch",
       {cudaErrorInvalidValue, cudaErrorLaunchOutOfResources, cudaErrorInvalidConfiguration,
        cudaErrorNoKernelImageForDevice}},
      {"cublasLtMatmulAlgoGetHeuristic",
       {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INTERNAL_ERROR}},
      {"cublasLtMatmul",
       {CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH,
        CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_NOT_SUPPORTED}},
      {"cudnnSetStream", {CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_INTERNAL_ERROR}},
      {"cudnnBackendExecute",
       {CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_INTERNAL_ERROR, CUDNN_STATUS_EXECUTION_FAILED,
        CUDNN_STATUS_NOT_SUPPORTED}},
      {"cudnnBackendFinalize",
       {CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_INTERNAL_ERROR,
        CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED}},
  };
  if (const auto found = known.find(function); found != known.end()) return found->second;
  if (function.starts_with("cublasLt")) return {CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE};
  if (function.starts_with("cudnn")) return {CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_INTERNAL_ERROR};
  return {cudaErrorInvalidValue};
}

// The image size of the next run. All differ, so that cuDNN plans convolutions in each run.
struct Size {
  int64_t height, width;
};
Size next_size() {
  static int64_t n = 0;
  const Size size{4 + n / 12, 4 + n % 12};
  ++n;
  return size;
}

Holdings held_when_idle() {
  synchronize(kCuda);
  empty_cache(kCuda);
  return Holdings::now();
}

// Whether errors of a function name the op's tensors.
bool has_operands(const std::string& function) {
  return function == "launch" || function == "cudaMemcpyAsync" || function == "cudaPointerGetAttributes" ||
         function.starts_with("cublas") || function.starts_with("cudnn");
}

void expect_names(const DeviceFailure& e, const std::string& function) {
  const std::string text = e.what();
  EXPECT_FALSE(e.op().empty());
  const bool is_short = dynamic_cast<const OutOfMemoryError*>(&e);
  if (is_short) {
    EXPECT_NE(text.find("held by"), std::string::npos) << text;
  } else {
    EXPECT_NE(text.find(function), std::string::npos) << text;
    EXPECT_NE(text.find(function.starts_with("cublas")  ? "CUBLAS_STATUS_"
                        : function.starts_with("cudnn") ? "CUDNN_STATUS_"
                                                        : "(cudaError"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("UNKNOWN"), std::string::npos) << text;
    EXPECT_EQ(text.find("unrecognized"), std::string::npos) << text;
  }
  EXPECT_NE(text.find("cuda:0"), std::string::npos) << text;
  if (!is_short && !has_operands(function)) return;
  EXPECT_TRUE(e.op() != "cuda" || text.find("backward of ") != std::string::npos) << text;
  EXPECT_TRUE(text.find("f32[") != std::string::npos || text.find("i64[") != std::string::npos) << text;
}

// Capacity of a device's cache of convolution plans.
constexpr decltype(Holdings::convolutions) kMaxPlans = 1024;

// Lets the n-th call of a function in a training step fail with `status`. Returns whether an error was
// thrown.
bool fail(const std::string& function, int64_t n, int status) {
  SCOPED_TRACE(concat(function, ", call ", n, ", status ", status));
  const Size size = next_size();
  const Expected expected(size.height, size.width);
  EXPECT_FALSE(is_near(expected.parameters[0], expected.parameters[1])) << "nothing would be noticed";
  const Holdings before = held_when_idle();
  const auto begin = std::chrono::steady_clock::now();
  bool thrown = false;
  {
    std::optional<Training> training;
    cuda::emulated::fail_call_of(function, n, status);
    try {
      training.emplace(kCuda, size.height, size.width);
      EXPECT_TRUE(is_near(training->step(), expected.read[0])) << "no error, and wrong numbers";
    } catch (const DeviceFailure& e) {
      thrown = true;
      expect_names(e, function);
      const bool fits = dynamic_cast<const OutOfMemoryError*>(&e) ? function == "cudaMalloc"
                        : function.starts_with("cublas") ? bool(dynamic_cast<const cuda::CublasError*>(&e))
                        : function.starts_with("cudnn")  ? bool(dynamic_cast<const cuda::CudnnError*>(&e))
                                                         : bool(dynamic_cast<const cuda::CudaError*>(&e));
      EXPECT_TRUE(fits) << "of another type: " << e.what();
    }
    cuda::emulated::fail_call(-1, cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);

    // The step was made, or it was not.
    if (!training) training.emplace(kCuda, size.height, size.width);
    const std::vector<double> now = training->parameters();
    const size_t steps = is_near(now, expected.parameters[1]);
    EXPECT_TRUE(is_near(now, expected.parameters[steps])) << "half a step";
    // The same network goes on.
    EXPECT_TRUE(is_near(training->step(), expected.read[steps])) << "after " << steps << " steps";
    EXPECT_TRUE(is_near(training->parameters(), expected.parameters[steps + 1])) << "after " << steps;
  }
  Holdings after = held_when_idle();
  EXPECT_EQ(after.convolutions, std::min(before.convolutions + 3, kMaxPlans)) << "of three directions";
  after.convolutions = before.convolutions;
  EXPECT_EQ(after, before) << to_string(after) << "; there were " << to_string(before);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  return thrown;
}

TEST(EachCall, MayFail) {
  Training(kCuda, 3, 3).step();  // what is made once: streams, handles
  held_when_idle();
  cuda::emulated::take_calls();
  Training(kCuda, 3, 4).step();
  const std::map<std::string_view, int64_t> calls = cuda::emulated::take_calls();
  std::set<std::string> silent;
  for (const auto& [name, count] : calls) {
    const std::string function(name);
    const Statuses statuses = statuses_of(function);
    int64_t thrown = 0;
    for (int64_t n = 0; n < count && !testing::Test::HasFailure(); ++n) {
      // All statuses of the first calls; then one of each third call, in turn.
      if (n >= 2 && n % 3) continue;
      for (size_t s = 0; s < statuses.size(); ++s)
        if (n < 2 || static_cast<size_t>(n / 3) % statuses.size() == s)
          thrown += fail(function, n, statuses[s]);
    }
    if (thrown == 0) silent.insert(function);
    RecordProperty(function, std::to_string(count) + " calls, " + std::to_string(thrown) + " errors");
  }
  for (const char* function : {"cudaMalloc",
                               "cudaFree",
                               "cudaSetDevice",
                               "launch",
                               "cudaMemcpyAsync",
                               "cudaPointerGetAttributes",
                               "cudaStreamSynchronize",
                               "cudaEventRecord",
                               "cudaStreamWaitEvent",
                               "cudaStreamCreateWithFlags",
                               "cudaEventCreateWithFlags",
                               "cublasLtMatmul",
                               "cublasLtMatmulAlgoGetHeuristic",
                               "cublasLtMatmulDescCreate",
                               "cublasLtMatrixLayoutCreate",
                               "cublasLtMatmulPreferenceCreate",
                               "cublasLtMatmulPreferenceSetAttribute",
                               "cudnnSetStream",
                               "cublasLtMatmulDescSetAttribute",
                               "cudnnBackendCreateDescriptor",
                               "cudnnBackendSetAttribute",
                               "cudnnBackendGetAttribute",
                               "cudnnBackendFinalize",
                               "cudnnBackendExecute"})
    EXPECT_TRUE(calls.contains(function)) << function << " is not called";
  // These may fail silently: destruction and queries; and pinned blocks are cached by earlier steps.
  for (const char* function :
       {"cudaEventDestroy", "cudaStreamDestroy", "cudaStreamQuery", "cudaEventQuery", "cudaMallocHost"})
    silent.erase(function);
  EXPECT_EQ(silent, std::set<std::string>());
}

// All calls from the n-th on fail, also the query whether the device is lost. The error must not claim that
// the device is lost.
TEST(EachCall, AndThoseThatFollowMayFail) {
  const Tensor x = ones({2, 2}, {.device = kCuda});
  EXPECT_EQ(raw::matmul(x, x).to_vector<float>(), std::vector<float>(4, 2));
  const Holdings before = held_when_idle();
  int64_t questions = 0;
  for (int64_t n = 0; n < 100; ++n) {
    cuda::emulated::take_calls();
    cuda::emulated::fail_call_of("", n, cudaErrorInvalidDevice, 1000);
    try {
      raw::matmul(x, x);
    } catch (const cuda::CublasError& e) {
      const std::string text = e.what();
      questions += cuda::emulated::take_calls().contains("cudaMemGetInfo");
      EXPECT_NE(text.find("[matmul] "), std::string::npos) << text;
      EXPECT_EQ(text.find("lost"), std::string::npos) << text;
    } catch (const DeviceFailure&) {
    }
    cuda::emulated::fail_call(-1, cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(raw::matmul(x, x).to_vector<float>(), std::vector<float>(4, 2)) << "after call " << n;
  }
  EXPECT_GE(questions, 1);
  const Holdings after = held_when_idle();
  EXPECT_EQ(after, before) << to_string(after) << "; there were " << to_string(before);
}

}  // namespace
}  // namespace gradus
