// The caching allocator: size classes, reuse of blocks, statistics, peaks, out of memory, threads. Each test
// uses a CPU device of its own, whose statistics no other test changes.
#include "gradus/tensor/runtime/allocator.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "gradus/tensor/runtime/memory.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

// Guard mode (see guard_test.cc) does not cache blocks and aligns some to less than 64 bytes.
const bool kGuarded = [] {
  const char* guard = std::getenv("GRADUS_GUARD");
  return guard && *guard && *guard != '0';
}();
#if defined(__SANITIZE_ADDRESS__)
const bool kCaching = false;  // every block goes back to the system, where the sanitizer sees it
#else
const bool kCaching = !kGuarded;
#endif

Device device(int index) { return {DeviceType::kCPU, static_cast<int16_t>(index)}; }

TEST(Allocator, RoundsUpByAtMostASixteenthAndCacheLines) {
  int64_t last = 0;
  for (int64_t bytes = 1; bytes < int64_t{1} << 33; bytes += 1 + bytes / 37) {
    const int64_t size = allocation_size(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_GE(size, last) << "grows with the request";
    ASSERT_EQ(size % 64, 0) << bytes;
    ASSERT_LE(size - bytes, std::max<int64_t>(63, bytes / 16)) << bytes;
    ASSERT_EQ(allocation_size(size), size) << "a class is its own size";
    last = size;
  }
}

TEST(Allocator, CountsThePeakOfEachScope) {
  const Device d = device(20);
  constexpr int64_t kMiB = int64_t{1} << 20;
  const auto use = [&](int64_t bytes) { deallocate(d, allocate(d, bytes), bytes); };
  void* kept = allocate(d, kMiB);
  use(8 * kMiB);
  PeakMemory outer(d);
  EXPECT_EQ(outer.bytes_before(), kMiB);
  EXPECT_EQ(outer.added_bytes(), 0) << "what was before does not count";
  use(2 * kMiB);
  {
    PeakMemory inner(d);
    use(3 * kMiB);
    EXPECT_EQ(inner.added_bytes(), 3 * kMiB);
    reset_peak_memory(d);  // does not affect scopes
    EXPECT_EQ(inner.bytes(), 4 * kMiB);
    EXPECT_EQ(outer.bytes(), 4 * kMiB);
  }
  {
    PeakMemory second(d);
    use(kMiB);
    EXPECT_EQ(second.added_bytes(), kMiB);
  }
  EXPECT_EQ(outer.added_bytes(), 3 * kMiB);
  deallocate(d, kept, kMiB);
}

TEST(Allocator, SummarizesDevicesThatWereUsed) {
  const Device d = device(21);
  constexpr int64_t kMiB = int64_t{1} << 20;
  deallocate(d, allocate(d, 3 * kMiB), 3 * kMiB);
  void* p = allocate(d, kMiB / 2);
  const std::string text = memory_summary();
  deallocate(d, p, kMiB / 2);
  EXPECT_EQ(text.rfind("device", 0), 0u) << text;
  const size_t line = text.find("\ncpu:21");
  ASSERT_NE(line, std::string::npos) << text;
  const std::string own = text.substr(line + 1, text.find('\n', line + 1) - line - 1);
  EXPECT_EQ(own, kCaching ? "cpu:21       0.5 MiB       3.0 MiB       3.0 MiB             2             2"
                          : "cpu:21       0.5 MiB       3.0 MiB       0.0 MiB             2             2");
  EXPECT_EQ(text.find("cpu:63"), std::string::npos) << "was never used";
}

TEST(Allocator, BlocksOfEverySizeAreAlignedAndApart) {
  std::vector<std::pair<unsigned char*, int64_t>> blocks;
  for (int64_t bytes :
       {1, 63, 64, 65, 1023, 1024, 1025, 1088, 1089, 65536, 65537, 1048575, 1048576, 1048577, 3000000}) {
    auto* p = static_cast<unsigned char*>(allocate(device(10), bytes));
    const int64_t alignment = kGuarded ? std::min<int64_t>(64, bytes & -bytes) : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment), 0u);
    std::memset(p, static_cast<int>(blocks.size()), static_cast<size_t>(bytes));
    blocks.emplace_back(p, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [p, bytes] = blocks[i];
    for (int64_t k = 0; k < bytes; ++k) ASSERT_EQ(p[k], i) << "byte " << k << " of " << bytes;
    deallocate(device(10), p, bytes);
  }
  empty_cache(device(10));
}

TEST(Allocator, HandsAFreedBlockOutAgain) {
  if (!kCaching) GTEST_SKIP() << "no cache under this sanitizer";
  for (int64_t bytes : {100, 5000, 2000000}) {
    void* first = allocate(device(11), bytes);
    deallocate(device(11), first, bytes);
    void* second = allocate(device(11), bytes - 10);  // of the same class
    EXPECT_EQ(first, second);
    deallocate(device(11), second, bytes - 10);
  }
  EXPECT_EQ(memory_stats(device(11)).system_calls, 3);
  EXPECT_EQ(memory_stats(device(11)).allocations, 6);
}

TEST(Allocator, ALargeBlockServesARequestAnEighthSmallerAndNoSmallerOne) {
  if (!kCaching) GTEST_SKIP() << "no cache under this sanitizer";
  constexpr int64_t kMiB = int64_t{1} << 20;
  void* nine = allocate(device(12), 9 * kMiB);
  deallocate(device(12), nine, 9 * kMiB);
  void* eight = allocate(device(12), 8 * kMiB);
  EXPECT_EQ(eight, nine);
  EXPECT_EQ(memory_stats(device(12)).live_bytes, 9 * kMiB);
  deallocate(device(12), eight, 8 * kMiB);
  void* four = allocate(device(12), 4 * kMiB);
  EXPECT_NE(four, nine);
  EXPECT_EQ(memory_stats(device(12)).cached_bytes, 9 * kMiB);
  deallocate(device(12), four, 4 * kMiB);
}

TEST(Allocator, StatisticsAreExact) {
  const Device d = device(13);
  const int64_t small = allocation_size(1000), large = allocation_size(5000000);
  void* a = allocate(d, 1000);
  void* b = allocate(d, 5000000);
  EXPECT_EQ(memory_stats(d).live_bytes, small + large);
  deallocate(d, b, 5000000);
  EXPECT_EQ(memory_stats(d).live_bytes, small);
  EXPECT_EQ(memory_stats(d).cached_bytes, kCaching ? large : 0);
  EXPECT_EQ(memory_stats(d).peak_bytes, small + large);
  reset_peak_memory(d);
  EXPECT_EQ(memory_stats(d).peak_bytes, small);
  deallocate(d, a, 1000);
  EXPECT_EQ(memory_stats(d).cached_bytes, kCaching ? small + large : 0);
  EXPECT_EQ(memory_stats(d).peak_bytes, small);
  empty_cache(d);
  const MemoryStats s = memory_stats(d);
  EXPECT_EQ(s.live_bytes, 0);
  EXPECT_EQ(s.cached_bytes, 0);
  EXPECT_EQ(s.allocations, 2);
  EXPECT_EQ(s.system_calls, 2);
}

TEST(Allocator, TensorsTakeAndReturnTheirBytes) {
  const TensorOptions options{DType::kF32, device(14)};
  {
    const Tensor x = empty({1000}, options), y = empty({0}, options);
    EXPECT_EQ(memory_stats(device(14)).live_bytes, allocation_size(4000));
  }
  EXPECT_EQ(memory_stats(device(14)).live_bytes, 0);
  EXPECT_EQ(memory_stats(device(14)).allocations, 1);
}

TEST(Allocator, AnEmptiedCacheIsFilledAgain) {
  const Device d = device(15);
  for (int round = 0; round < 3; ++round) {
    for (int64_t bytes : {64, 4096, 3000000}) deallocate(d, allocate(d, bytes), bytes);
    empty_cache(d);
    EXPECT_EQ(memory_stats(d).cached_bytes, 0);
  }
  EXPECT_EQ(memory_stats(d).system_calls, 9);
}

TEST(Allocator, OutOfMemoryIsAnErrorWithTheRequestAndLeavesTheAllocatorUsable) {
  const Device d = device(16);
  void* kept = allocate(d, 100);
  const int64_t too_much = int64_t{1} << 60;
  EXPECT_ERROR(Error, allocate(d, too_much), "[allocate] out of memory: asked for 1152921504606846976 bytes",
               "live");
  EXPECT_THROW(empty({int64_t{1} << 58}, {DType::kF32, d}), Error);
  EXPECT_EQ(memory_stats(d).live_bytes, allocation_size(100));
  EXPECT_EQ(memory_stats(d).allocations, 1);
  void* after = allocate(d, 2000000);
  EXPECT_NE(after, nullptr);
  deallocate(d, after, 2000000);
  deallocate(d, kept, 100);
}

TEST(Allocator, ManyThreadsNeverShareABlock) {
  const Device d = device(17);
  constexpr int kThreads = 4, kRounds = 3000;
  std::vector<std::thread> threads;
  std::atomic<int> torn{0};  // blocks whose first or last word another thread has overwritten
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::pair<int64_t*, int64_t>> held;
      uint64_t random = 1 + static_cast<uint64_t>(t);
      for (int i = 0; i < kRounds; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t bytes = 8 + static_cast<int64_t>(random >> 33) % (random >> 62 ? 4000 : 1500000);
        auto* p = static_cast<int64_t*>(allocate(d, bytes));
        *p = i * kThreads + t;
        p[bytes / 8 - 1] = *p;
        held.emplace_back(p, bytes);
        if (held.size() < 8) continue;
        const size_t victim = (random >> 20) % held.size();
        const auto [q, n] = held[victim];
        if (*q % kThreads != t || q[n / 8 - 1] != *q) ++torn;
        deallocate(d, q, n);
        held[victim] = held.back();
        held.pop_back();
        if (i % 1000 == 999) empty_cache(d);
      }
      for (const auto& [p, bytes] : held) deallocate(d, p, bytes);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(memory_stats(d).live_bytes, 0);
  EXPECT_EQ(memory_stats(d).allocations, kThreads * kRounds);
  empty_cache(d);
}

TEST(Allocator, TheSummaryReadsInMebibytes) {
  MemoryStats s;
  s.live_bytes = 25 << 19, s.peak_bytes = 34 << 20, s.allocations = 7, s.system_calls = 2;
  EXPECT_EQ(to_string(s), "live 12.5 MiB, peak 34.0 MiB, cached 0.0 MiB, 7 allocations, 2 from the system");
}

}  // namespace
}  // namespace gradus
