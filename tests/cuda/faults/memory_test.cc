// Out of memory in the middle of a training step, on an emulated device of 64 MiB: the error names the
// request and the ops that hold memory; nothing leaks, no parameter is half stepped, and the same network
// trains on.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tests/cuda/faults/training_step.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"

namespace gradus {
namespace {

using internal::DeviceAllocator;

[[maybe_unused]] const bool is_small = (cuda::emulated::set_devices(1, size_t(64) << 20), true);

Holdings held_when_idle() {
  synchronize(kCuda);
  empty_cache(kCuda);
  return Holdings::now();
}

void expect_names(const OutOfMemoryError& e) {
  const std::string text = e.what();
  for (const char* part :
       {"out of memory on cuda:0: asked for ", " bytes; live ", "; held by", "; no room for "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  EXPECT_TRUE(e.op() != "allocate" || text.find("backward of ") != std::string::npos) << text;
}

// Without the cache each allocation is a cudaMalloc, which fails in turn.
TEST(ShortMemory, AtEachAllocationOfAStep) {
  DeviceAllocator& allocator = DeviceAllocator::of(kCuda);
  const Expected expected(5, 5);
  Training(kCuda, 4, 5).step();  // what is made once
  const Holdings before = held_when_idle();
  allocator.disable_caching(true);
  std::set<std::string> ops;
  size_t descriptors = 0;  // of plans, which are kept
  bool passed = false;
  int64_t n = 0;
  for (; !passed && !HasFailure(); ++n) {
    SCOPED_TRACE(concat("allocation ", n));
    {
      Training training(kCuda, 5, 5);
      const std::vector<double> at_first = training.parameters();
      // The first try, and the one after emptying the cache.
      cuda::emulated::fail_call_of("cudaMalloc", n, cudaErrorMemoryAllocation, 2);
      size_t steps = 0;
      try {
        EXPECT_TRUE(is_near(training.step(), expected.read[0]));
        passed = true, steps = 1;
      } catch (const OutOfMemoryError& e) {
        expect_names(e);
        ops.insert(e.op());
        cuda::emulated::fail_call(-1, cudaSuccess);
        steps = is_near(training.parameters(), expected.parameters[1]);
        EXPECT_TRUE(steps == 1 || training.parameters() == at_first);
      }
      cuda::emulated::fail_call(-1, cudaSuccess);
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      EXPECT_TRUE(is_near(training.parameters(), expected.parameters[steps])) << "half a step";
      EXPECT_TRUE(is_near(training.step(), expected.read[steps]));
      EXPECT_TRUE(is_near(training.parameters(), expected.parameters[steps + 1]));
    }
    Holdings after = held_when_idle();
    if (n == 0) descriptors = after.convolutions;
    EXPECT_EQ(after.convolutions, descriptors);
    after.convolutions = before.convolutions;
    EXPECT_EQ(after, before) << to_string(after) << "; there were " << to_string(before);
  }
  allocator.disable_caching(false);
  EXPECT_GE(n, 35);
  EXPECT_TRUE(ops.contains("conv2d")) << "workspace and result";
  EXPECT_TRUE(ops.contains("cross_entropy"));
  EXPECT_TRUE(ops.contains("SGD")) << "states";
  EXPECT_GE(ops.size(), 8u);
}

TEST(ShortMemory, ALayerThatDoesNotFitIsNamedAndSmallerOnesTrain) {
  const Holdings before = held_when_idle();
  {
    // The images have 18 MiB, what the convolution makes of them has 36 MiB.
    Training large(kCuda, 1536, 1536);
    const std::vector<double> at_first = large.parameters();
    try {
      large.step();
      ADD_FAILURE() << "no error";
    } catch (const OutOfMemoryError& e) {
      expect_names(e);
      EXPECT_NE(std::string(e.what()).find("f32[2,2,1536,1536]"), std::string::npos) << e.what();
    }
    EXPECT_EQ(large.parameters(), at_first);
    EXPECT_LT(memory_stats(kCuda).live_bytes, int64_t(1) << 20);
    const Expected expected(6, 6);
    Training small(kCuda, 6, 6);
    EXPECT_TRUE(is_near(small.step(), expected.read[0]));
  }
  EXPECT_EQ(held_when_idle().blocks, before.blocks);
}

// Cached blocks are freed before an allocation fails.
TEST(ShortMemory, TheCacheIsEmptiedFirst) {
  for (int i = 0; i < 3; ++i) empty({15 << 20}, {DType::kU8, kCuda});
  EXPECT_GE(memory_stats(kCuda).cached_bytes, int64_t(15) << 20);
  const Tensor most = zeros({60 << 20}, {DType::kU8, kCuda});
  EXPECT_EQ(memory_stats(kCuda).cached_bytes, 0);
  try {
    const Tensor more = zeros({8 << 20}, {DType::kU8, kCuda});
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemoryError& e) {
    EXPECT_EQ(e.op(), "zeros");
    EXPECT_NE(std::string(e.what()).find("held by zeros: 62914560 bytes in 1 block"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace gradus
