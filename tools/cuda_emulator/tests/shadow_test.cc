// Shadow memory against a cell for each byte: random accesses of a few threads to a few words, between barriers and
// warp-wide waits, conflict at the same byte with the same thread.
#include "gradus/tools/cuda_emulator/shadow.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gradus::cuda::emulated {
namespace {

constexpr size_t kBytes = 64;

// The clocks of the threads of two warps, which are the same in each block.
class Threads {
 public:
  Clock clock(uint32_t block, uint32_t thread) const {
    return {block, thread, std::max(now_[thread / 32], barrier_), barrier_, seen_[thread / 32].data()};
  }
  void pass_barrier() { barrier_ = ++time_; }
  void pass_warp_wait(uint32_t warp) {
    now_[warp] = ++time_;
    seen_[warp].fill(time_);
  }

 private:
  uint32_t time_ = 1, barrier_ = 0;
  std::array<uint32_t, 2> now_{};
  std::array<std::array<uint32_t, 32>, 2> seen_{};
};

// Returns the first conflict of the bytes, each of which has a cell.
Conflict enter_each(std::vector<Cell>& cells, size_t offset, size_t bytes, uint32_t launch,
                    const Clock& clock, Access access) {
  for (size_t at = offset; at < offset + bytes; ++at) {
    Conflict conflict = enter(&cells[at], launch, clock, access);
    conflict.at = at;
    if (conflict.kind != Conflict::kNone) return conflict;
  }
  return {};
}

TEST(Shadow, FindsTheConflictsOfCellsOfBytes) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Shadow shadow(kBytes);
  std::vector<Cell> cells(kBytes);
  int conflicts = 0, accesses = 0;
  for (uint32_t launch = 1; launch <= 20000; ++launch) {
    Threads threads;
    // Some launches access whole words alone, or mostly.
    const uint32_t parts = below(3) == 0 ? 0 : below(4);
    for (int i = 0; i < 40; ++i) {
      if (below(6) == 0) threads.pass_barrier();
      if (below(4) == 0) threads.pass_warp_wait(below(2));
      size_t bytes = size_t{4} << below(3), offset = below(kBytes / 4) * 4;
      if (below(8) < parts) bytes = 1 + below(8), offset = below(kBytes);
      if (offset + bytes > kBytes) continue;
      // Mostly one thread, so that launches get far before they conflict.
      const uint32_t block = below(20) == 0, thread = below(4) == 0 ? below(64) : 5;
      const auto access = static_cast<Access>(below(3));
      const Clock clock = threads.clock(block, thread);
      const Conflict want = enter_each(cells, offset, bytes, launch, clock, access);
      const Conflict got = shadow.enter(offset, bytes, launch, clock, access);
      ++accesses;
      ASSERT_EQ(got.kind, want.kind) << "launch " << launch << ", access " << i;
      if (want.kind == Conflict::kNone) continue;
      ASSERT_EQ(got.thread, want.thread);
      ASSERT_EQ(got.at, want.at);
      ++conflicts;
      break;
    }
  }
  EXPECT_GT(conflicts, 5000);
  EXPECT_GT(accesses, 100000);
}

// The bytes beside those that an access splits off keep the history of their word.
TEST(Shadow, SplitsAWordIntoBytesOfItsHistory) {
  Shadow shadow(kBytes);
  Threads threads;
  EXPECT_EQ(shadow.enter(0, 8, 1, threads.clock(0, 1), Access::kWrite).kind, Conflict::kNone);
  threads.pass_barrier();
  EXPECT_EQ(shadow.enter(5, 1, 1, threads.clock(0, 2), Access::kRead).kind, Conflict::kNone);
  const Conflict conflict = shadow.enter(4, 4, 1, threads.clock(1, 2), Access::kWrite);
  EXPECT_EQ(conflict.kind, Conflict::kEarlierWrite);
  EXPECT_EQ(conflict.at, 4u);
  EXPECT_EQ(conflict.thread, thread_id(0, 1));
  // The next launch begins without a history, in whole words.
  EXPECT_EQ(shadow.enter(0, 8, 2, threads.clock(1, 2), Access::kWrite).kind, Conflict::kNone);
}

}  // namespace
}  // namespace gradus::cuda::emulated
