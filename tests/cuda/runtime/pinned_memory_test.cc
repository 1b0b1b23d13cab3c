// Pinned memory of the host: blocks are used again, but not before what is queued has read them.
#include "gradus/tensor/runtime/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gradus/tensor/cuda/emulated/call.h"
#include "gradus/tensor/cuda/emulated/order.h"
#include "gradus/tensor/cuda/emulated/pinned.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus {
namespace {

using internal::PinnedMemory;

const Device kCuda = Device::parse("cuda:0");
constexpr int64_t kKiB = int64_t{1} << 10;

TEST(PinnedMemory, ABlockIsUsedAgainWhereItFits) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  void* const large = memory.take(0, 1000 * kKiB);
  EXPECT_TRUE(cuda::emulated::is_pinned(large, size_t(1000 * kKiB)));
  void* const small = memory.take(0, 10);
  EXPECT_NE(small, large);
  memory.give_back(large);
  memory.give_back(small);
  EXPECT_EQ(memory.take(0, 60 * kKiB), small);
  EXPECT_NE(memory.take(0, 60 * kKiB), large) << "for less than half of it, it is too large";
  EXPECT_NE(memory.take(0, 1100 * kKiB), large) << "it is too small";
  EXPECT_EQ(memory.take(0, 600 * kKiB), large);
  EXPECT_NE(memory.take(0, 600 * kKiB), large) << "it is taken";
  memory.use(&memory, Event());  // no block
}

// Copies a block that is given back at once, and writes into the next one.
bool is_right(PinnedMemory& memory, bool told) {
  const Tensor x = zeros({1000}, {.device = kCuda});
  const auto stream = internal::current_native_stream(kCuda);
  stream->synchronize();
  const auto fill = [&](float value) {
    auto* const p = static_cast<float*>(memory.take(0, 4000));
    std::fill(p, p + 1000, value);
    return p;
  };
  float* const first = fill(1);
  stream->runtime().copy(x.raw_ptr(), first, 4000, stream->handle());
  if (told) memory.use(first, Event::record(current_stream(kCuda)));
  memory.give_back(first);
  memory.give_back(fill(2));
  return x.to_vector<float>() == std::vector<float>(1000, 1);
}

TEST(PinnedMemory, ABlockIsNotUsedAgainBeforeItWasCopied) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    cuda::emulated::set_seed(seed);
    EXPECT_TRUE(is_right(memory, true)) << "seed " << seed;
    wrong += !is_right(memory, false);
  }
  EXPECT_GE(wrong, 5) << "the test would not notice";
}

TEST(PinnedMemory, WhereThereIsNoRoomIdleBlocksGoFirst) {
  PinnedMemory memory(internal::runtime_of(kCuda));
  void* const idle = memory.take(0, 100 * kKiB);
  void* const taken = memory.take(0, 100 * kKiB);
  memory.give_back(idle);
  cuda::emulated::fail_call_of("cudaMallocHost", 0, cudaErrorMemoryAllocation);
  void* const next = memory.take(0, 1000 * kKiB);
  EXPECT_NE(next, nullptr);
  EXPECT_FALSE(cuda::emulated::is_pinned(idle));
  EXPECT_TRUE(cuda::emulated::is_pinned(taken));
  EXPECT_EQ(memory.take(0, int64_t{1} << 60), nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace gradus
