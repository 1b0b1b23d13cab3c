// The cache of pinned host memory: blocks are reused, but not before queued copies have read them. On the
// emulator.
#include "gradus/tensor/runtime/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/cuda_emulator/pinned.h"

namespace gradus {
namespace {

using internal::PinnedMemory;

const Device kCuda = Device::parse("cuda:0");
constexpr int64_t kKiB = int64_t{1} << 10;

TEST(PinnedMemory, ABlockIsUsedAgainWhereItFits) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  void* const large = memory.allocate(0, 1000 * kKiB);
  EXPECT_TRUE(cuda::emulated::is_pinned(large, size_t(1000 * kKiB)));
  void* const small = memory.allocate(0, 10);
  EXPECT_NE(small, large);
  memory.release(large);
  memory.release(small);
  EXPECT_EQ(memory.allocate(0, 60 * kKiB), small);
  EXPECT_NE(memory.allocate(0, 60 * kKiB), large) << "for less than half of it, it is too large";
  EXPECT_NE(memory.allocate(0, 1100 * kKiB), large) << "it is too small";
  EXPECT_EQ(memory.allocate(0, 600 * kKiB), large);
  EXPECT_NE(memory.allocate(0, 600 * kKiB), large) << "it is taken";
  memory.record_use(&memory, nullptr);  // no block
  EXPECT_EQ(memory.blocks(), 5u);
}

// Whether record_use() is called after the copy, or fails.
enum class Told { kYes, kNo, kFails };

// Copies a block to the device, releases it at once and writes the next block. Returns whether the first
// block's values arrived.
bool is_right(PinnedMemory& memory, Told told) {
  const Tensor x = zeros({1000}, {.device = kCuda});
  const auto stream = internal::current_native_stream(kCuda);
  stream->synchronize();
  const auto fill = [&](float value) {
    auto* const p = static_cast<float*>(memory.allocate(0, 4000));
    std::fill(p, p + 1000, value);
    return p;
  };
  float* const first = fill(1);
  stream->runtime().copy(x.raw_ptr(), first, 4000, stream->handle());
  if (told == Told::kFails) {
    cuda::emulated::fail_call_of("cudaEventRecord", 0, cudaErrorInvalidValue);
    EXPECT_THROW(memory.record_use(first, stream->handle()), cuda::CudaError);
  }
  if (told == Told::kYes) memory.record_use(first, stream->handle());
  memory.release(first);
  memory.release(fill(2));
  return x.to_vector<float>() == std::vector<float>(1000, 1);
}

TEST(PinnedMemory, ABlockIsNotUsedAgainBeforeItWasCopied) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    cuda::emulated::set_seed(seed);
    PinnedMemory memory(internal::runtime_of(kCuda)), other(internal::runtime_of(kCuda));
    EXPECT_TRUE(is_right(memory, Told::kYes)) << "seed " << seed;
    wrong += !is_right(other, Told::kNo);
  }
  EXPECT_GE(wrong, 5) << "the test would not notice";
}

// A block whose event could not be recorded is reused when the device is idle.
TEST(PinnedMemory, NoBlockIsLost) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    cuda::emulated::set_seed(seed);
    EXPECT_TRUE(is_right(memory, Told::kFails)) << "seed " << seed;
    EXPECT_EQ(memory.blocks(), 1u) << "seed " << seed;
  }
}

// The device is behind, so the host must wait for some blocks.
TEST(PinnedMemory, ManyBlocksInUseAreEnough) {
  cuda::emulated::set_seed(1);
  const auto stream = internal::current_native_stream(kCuda);
  for (const auto& [bytes, most] : {std::pair(4 * kKiB, 64), {20'000 * kKiB, 4}}) {
    const int copies = 10 * most;
    const Tensor x = zeros({copies, 100}, {.device = kCuda});
    stream->synchronize();
    PinnedMemory memory(internal::runtime_of(kCuda));
    cuda::HostCallScope calls;
    for (int i = 0; i < copies; ++i) {
      void* const p = memory.allocate(0, bytes);
      std::fill_n(static_cast<float*>(p), 100, float(i));
      stream->runtime().copy(static_cast<float*>(x.raw_ptr()) + 100 * i, p, 400, stream->handle());
      memory.record_use(p, stream->handle());
      memory.release(p);
    }
    EXPECT_EQ(memory.blocks(), static_cast<size_t>(most));
    EXPECT_GE(calls.total().waits, 1);
    EXPECT_LE(calls.total().waits, copies - most);
    const std::vector<float> values = x.to_vector<float>();
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], float(i / 100));
  }
}

// An event belongs to a device.
TEST(PinnedMemory, DevicesHaveTheirOwn) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  void* const first = memory.allocate(0, 100);
  memory.release(first);
  const int second = cuda::emulated::device_count() - 1;
  EXPECT_EQ(memory.allocate(second, 100) == first, second == 0);
  EXPECT_EQ(memory.allocate(0, 100) == first, second != 0);
}

TEST(PinnedMemory, WhereThereIsNoRoomIdleBlocksGoFirst) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  void* const idle = memory.allocate(0, 100 * kKiB);
  void* const taken = memory.allocate(0, 100 * kKiB);
  memory.release(idle);
  cuda::emulated::fail_call_of("cudaMallocHost", 0, cudaErrorMemoryAllocation);
  void* const next = memory.allocate(0, 1000 * kKiB);
  EXPECT_NE(next, nullptr);
  EXPECT_FALSE(cuda::emulated::is_pinned(idle));
  EXPECT_TRUE(cuda::emulated::is_pinned(taken));
  EXPECT_EQ(memory.allocate(0, int64_t{1} << 60), nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// The error is thrown, and the block stays in the cache.
TEST(PinnedMemory, ABlockThatCannotBeFreedIsKept) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  void* const idle = memory.allocate(0, 100 * kKiB);
  memory.release(idle);
  cuda::emulated::fail_call_of("cudaFreeHost", 0, cudaErrorInvalidValue);
  try {
    memory.allocate(0, int64_t{1} << 60);
    ADD_FAILURE() << "no error";
  } catch (const cuda::CudaError& e) {
    EXPECT_NE(std::string(e.what()).find("cudaFreeHost failed on cuda:0: invalid argument"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(memory.blocks(), 1u);
  EXPECT_EQ(memory.allocate(0, 100 * kKiB), idle);
  memory.release(idle);
  EXPECT_EQ(memory.allocate(0, int64_t{1} << 60), nullptr);
  EXPECT_EQ(memory.blocks(), 0u);
  EXPECT_FALSE(cuda::emulated::is_pinned(idle));
}

}  // namespace
}  // namespace gradus
