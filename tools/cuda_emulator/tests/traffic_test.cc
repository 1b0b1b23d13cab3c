// Tests the counters of memory traffic (counters.h) with kernels whose traffic is known exactly.
#include <gtest/gtest.h>

#include <functional>

#include "gradus/tools/cuda_emulator/counters.h"
#include "traffic.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

struct Totals {
  uint64_t moved = 0, asked = 0;    // bytes of global memory: whole sectors, and those that threads access
  uint64_t shared = 0, passes = 0;  // passes over shared memory without bank conflicts, and actual ones
};
Totals count(const std::function<void()>& run) {
  CounterScope counting;
  run();
  Totals all;
  for (const Traffic& t : counting.take()) {
    all.moved += t.sectors * kSectorBytes;
    if (t.shared)
      all.shared += t.least_passes, all.passes += t.passes;
    else
      all.asked += t.bytes;
  }
  return all;
}

TEST(Traffic, BankConflictsAreCounted) {
  const Totals padded = count([] { traffic::transpose(true); });
  EXPECT_EQ(padded.passes, padded.shared);
  // Every read of a column has all lanes in one bank: 32 passes. Half of the requests are such reads.
  const Totals plain = count([] { traffic::transpose(false); });
  EXPECT_EQ(plain.passes, plain.shared / 2 * (1 + 32));
}

TEST(Traffic, SectorsAreCounted) {
  const Totals t = count([] { traffic::every_eighth(); });
  // A strided read of 4 bytes moves a sector of 32; the writes are contiguous.
  EXPECT_EQ(t.asked, 2u * 512 * 4);
  EXPECT_EQ(t.moved, 512u * 32 + 512u * 4);
}

TEST(Traffic, PlacesAreLinesOfTheSource) {
  CounterScope counting;
  traffic::every_eighth();
  const auto all = counting.take();
  ASSERT_EQ(all.size(), 2u);
  for (const Traffic& t : all) EXPECT_NE(describe(t.location).find("traffic.cu.cc:"), std::string::npos);
}

// Words of 8 bytes at a stride of 24: the lanes of half a warp access different banks.
TEST(Traffic, StructsAreCountedByWords) {
  const Totals t = count([] { traffic::exchange_structs(); });
  EXPECT_EQ(t.shared, 2u * 2 * 3 * 256 / 32);
  EXPECT_EQ(t.passes, t.shared);
}

TEST(Traffic, LaunchesAreNamed) {
  CounterScope counting;
  traffic::transpose(true);
  traffic::transpose(true);
  const auto all = counting.take_launches();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NE(all[0].kernel.find("transpose_tiles<1>"), std::string::npos) << all[0].kernel;
  EXPECT_EQ(all[0].launches, 2);
  EXPECT_EQ(all[0].threads, 256);
  EXPECT_EQ(all[0].shared_bytes, 32 * 33 * 4);
}

}  // namespace
