// NCCL with a communicator of one member, as Gradus uses it: non-blocking, polled, aborted. On a real GPU the test prints
// how long the calls take.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "gradus/tensor/cuda/nccl/nccl_functions.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {
namespace {

constexpr Device kGpu{DeviceType::kCUDA, 0};
constexpr int64_t kSize = 1000;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class NcclOfOne : public testing::Test {
 protected:
  NcclOfOne() {
    const double begin = seconds();
    ncclUniqueId id;
    EXPECT_EQ(nccl_.ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    native_->runtime().make_current(0);
    settle("ncclCommInitRankConfig", nccl_.ncclCommInitRankConfig(&comm_, 1, id, 0, &config), begin);
  }
  ~NcclOfOne() override {
    if (comm_) (void)nccl_.ncclCommAbort(comm_);
  }

  // Polls until the call is queued, and prints how long that took.
  void settle(const char* function, ncclResult_t status, double begin) {
    int polls = 0;
    for (; status == ncclInProgress; ++polls) {
      std::this_thread::sleep_for(std::chrono::microseconds(10));
      ASSERT_EQ(nccl_.ncclCommGetAsyncError(comm_, &status), ncclSuccess) << function;
    }
    ASSERT_EQ(status, ncclSuccess) << function << ": " << nccl_.ncclGetErrorString(status);
    std::printf("%-24s %9.1f us, %d polls\n", function, (seconds() - begin) * 1e6, polls);
  }
  template <class F> void call(const char* function, F&& f) {
    const double begin = seconds();
    settle(function, f(), begin);
  }

  const cuda::Nccl& nccl_ = cuda::nccl("test");
  const Stream stream_ = Stream::of(kGpu);
  const std::shared_ptr<internal::NativeStream> native_ = internal::native_stream(stream_);
  const cudaStream_t handle_ = static_cast<cudaStream_t>(native_->handle());
  ncclComm_t comm_ = nullptr;
};

TEST_F(NcclOfOne, EachCallCopies) {
  const auto check = [&](const char* function, auto&& f) {
    const Tensor x = full({kSize}, 3, {.device = kGpu}), y = full({kSize}, 0, {.device = kGpu});
    for (int round = 0; round < 3; ++round)  // the first call makes connections and loads kernels
      call(function, [&] { return f(x.raw_ptr(), y.raw_ptr()); });
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(kSize, 3)) << function;
  };
  const size_t n = kSize;
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg})
    check("ncclAllReduce", [&](const void* x, void* y) {
      return nccl_.ncclAllReduce(x, y, n, ncclFloat32, op, comm_, handle_);
    });
  check("ncclReduce", [&](const void* x, void* y) {
    return nccl_.ncclReduce(x, y, n, ncclFloat32, ncclSum, 0, comm_, handle_);
  });
  check("ncclBroadcast", [&](const void* x, void* y) {
    return nccl_.ncclBroadcast(x, y, n * 4, ncclChar, 0, comm_, handle_);
  });
  check("ncclAllGather",
        [&](const void* x, void* y) { return nccl_.ncclAllGather(x, y, n * 4, ncclChar, comm_, handle_); });
  check("ncclReduceScatter", [&](const void* x, void* y) {
    return nccl_.ncclReduceScatter(x, y, n, ncclFloat32, ncclSum, comm_, handle_);
  });
  check("ncclSend and ncclRecv", [&](const void* x, void* y) {
    EXPECT_EQ(nccl_.ncclGroupStart(), ncclSuccess);
    EXPECT_LE(nccl_.ncclSend(x, n, ncclFloat32, 0, comm_, handle_), ncclInProgress);
    EXPECT_LE(nccl_.ncclRecv(y, n, ncclFloat32, 0, comm_, handle_), ncclInProgress);
    return nccl_.ncclGroupEnd();
  });
}

TEST_F(NcclOfOne, IsClosed) {
  call("ncclCommFinalize", [&] { return nccl_.ncclCommFinalize(comm_); });
  const double begin = seconds();
  EXPECT_EQ(nccl_.ncclCommDestroy(comm_), ncclSuccess);
  std::printf("%-24s %9.1f us\n", "ncclCommDestroy", (seconds() - begin) * 1e6);
  comm_ = nullptr;
}

// Also with work under way, and the GPU can be used afterwards.
TEST_F(NcclOfOne, IsAborted) {
  const Tensor x = full({1 << 20}, 1, {.device = kGpu});
  call("ncclAllReduce", [&] {
    return nccl_.ncclAllReduce(x.raw_ptr(), x.raw_ptr(), 1 << 20, ncclFloat32, ncclSum, comm_, handle_);
  });
  const double begin = seconds();
  EXPECT_EQ(nccl_.ncclCommAbort(comm_), ncclSuccess);
  std::printf("%-24s %9.1f us\n", "ncclCommAbort", (seconds() - begin) * 1e6);
  comm_ = nullptr;
  EXPECT_EQ(full({4}, 2, {.device = kGpu}).to_vector<float>(), std::vector<float>(4, 2));
}

}  // namespace
}  // namespace gradus
