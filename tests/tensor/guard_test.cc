// The allocator's guard mode, which finds out-of-bounds accesses: GRADUS_GUARD=after puts each block directly
// before an unreadable page, GRADUS_GUARD=before directly behind one. BUILD.bazel runs the test with both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tests/ops/values.h"

// A fault ends the program by its signal, in a build with a sanitizer too.
extern "C" const char* __asan_default_options() { return "handle_segv=0"; }
extern "C" const char* __tsan_default_options() { return "handle_segv=0"; }

namespace gradus {
namespace {

bool is_before() { return std::string(std::getenv("GRADUS_GUARD")) == "before"; }

// Assignments to `sink` are not optimized away.
volatile char sink;

class GuardDeathTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { block = static_cast<char*>(allocate(kCPU, bytes)); }
  void TearDown() override { deallocate(kCPU, block, bytes); }
  int64_t bytes = GetParam();
  volatile char* access(int64_t at) { return block + at; }
  char* block;
};
INSTANTIATE_TEST_SUITE_P(Sizes, GuardDeathTest, testing::Values(1, 4, 100, 4096, 5000, 3 << 20));

TEST_P(GuardDeathTest, EveryByteIsThere) {
  for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(static_cast<unsigned char>(block[i]), 0xff);
  std::memset(block, 1, static_cast<size_t>(bytes));
  const int64_t alignment = std::min<int64_t>(64, bytes & -bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % static_cast<uintptr_t>(alignment), 0u);
}

TEST_P(GuardDeathTest, TheByteBeyondIsAFault) {
  EXPECT_EXIT(sink = *access(is_before() ? -1 : bytes), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(*access(is_before() ? -1 : bytes) = 0, testing::KilledBySignal(SIGSEGV), "");
}

TEST_P(GuardDeathTest, AWriteOnTheOtherSideIsToldWhenTheBlockIsFreed) {
  const auto write = [&] {
    *access(is_before() ? bytes : -1) = 0;
    deallocate(kCPU, block, bytes);
    std::_Exit(0);
  };
  if (bytes % 4096 == 0)  // whole pages: the other neighbor is unreadable too
    EXPECT_EXIT(write(), testing::KilledBySignal(SIGSEGV), "");
  else
    EXPECT_EXIT(write(), testing::KilledBySignal(SIGABRT),
                is_before() ? "wrote 1 bytes behind the end of a block" : "wrote 1 bytes before a block");
}

TEST_P(GuardDeathTest, AFreedBlockIsNotReadable) {
  const auto read = [&] {
    deallocate(kCPU, block, bytes);
    sink = *access(0);
  };
  EXPECT_EXIT(read(), testing::KilledBySignal(SIGSEGV), "");
}

TEST(Guard, FreshMemoryIsNaN) {
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (double v : empty({33}, {t}).to_vector<double>()) EXPECT_TRUE(std::isnan(v)) << name_of(t);
}

TEST(Guard, TooManyBlocksAreAnErrorThatNamesTheLimit) {
  const Device d{DeviceType::kCPU, 30};
  std::vector<void*> blocks;
  try {
    while (blocks.size() < 1'000'000) blocks.push_back(allocate(d, 4));
    GTEST_SKIP() << "this system allows more mappings";
  } catch (const Error& e) {
    EXPECT_GT(blocks.size(), 1000u);
    EXPECT_NE(std::string(e.what()).find("GRADUS_GUARD"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("vm.max_map_count"), std::string::npos) << e.what();
  }
  for (void* p : blocks) deallocate(d, p, 4);
  EXPECT_EQ(memory_stats(d).live_bytes, 0);
}

}  // namespace
}  // namespace gradus
