// What kernels ask of memory: the counters count rightly, and Gradus' kernels move few bytes beyond those
// that must move.
#include <gtest/gtest.h>

#include <functional>

#include "gradus/tensor/cuda/emulated/counters.h"
#include "traffic.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

struct Totals {
  uint64_t moved = 0, asked = 0;    // bytes of global memory
  uint64_t shared = 0, passes = 0;  // requests to shared memory
};
Totals count(const std::function<void()>& run) {
  CounterScope counting;
  run();
  Totals all;
  for (const Traffic& t : counting.take()) {
    all.moved += t.sectors * kSectorBytes;
    if (t.shared)
      all.shared += t.requests, all.passes += t.passes;
    else
      all.asked += t.bytes;
  }
  return all;
}

TEST(Traffic, BankConflictsAreCounted) {
  const Totals padded = count([] { traffic::transpose(true); });
  EXPECT_EQ(padded.passes, padded.shared);
  // Every read of a column meets one bank: 32 passes. Half of the requests are such reads.
  const Totals plain = count([] { traffic::transpose(false); });
  EXPECT_EQ(plain.passes, plain.shared / 2 * (1 + 32));
}

TEST(Traffic, SectorsAreCounted) {
  const Totals t = count([] { traffic::every_eighth(); });
  // A read of 4 bytes moves 32, a write moves what it asks for.
  EXPECT_EQ(t.asked, 2u * 512 * 4);
  EXPECT_EQ(t.moved, 512u * 32 + 512u * 4);
}

TEST(Traffic, PlacesAreLinesOfTheSource) {
  CounterScope counting;
  traffic::every_eighth();
  const auto all = counting.take();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(all[0].place.find("traffic.cu.cc:"), std::string::npos) << all[0].place;
}

constexpr int64_t kBytes = 1 << 18;
constexpr double kAll = kBytes;

TEST(Traffic, DenseKernelsMoveWhatMustMove) {
  const auto ratio = [](double must, const std::function<void()>& run) {
    const Totals t = count(run);
    EXPECT_LE(t.passes, 1.2 * static_cast<double>(t.shared));
    return static_cast<double>(t.moved) / must;
  };
  EXPECT_LE(ratio(3 * kAll, [] { traffic::add_f32(kBytes); }), 1.1);
  EXPECT_LE(ratio(3 * kAll, [] { traffic::add_bf16(kBytes); }), 1.1);
  EXPECT_LE(ratio(kAll, [] { traffic::fill(kBytes); }), 1.1);
  for (const int64_t n : {4, 32, 1024, 16384})
    EXPECT_LE(ratio(kAll + kAll / double(n), [=] { traffic::sum_rows(kBytes, n); }), 1.1) << n;
  for (const int64_t inner : {4, 64, 1024})
    EXPECT_LE(ratio(kAll, [=] { traffic::sum_columns(kBytes, inner); }), 1.1) << inner;
  EXPECT_LE(ratio(3 * kAll * 63 / 64, [] { traffic::add_strided(kBytes); }), 1.3);
  EXPECT_LE(ratio(2 * kAll, [] { traffic::to_channels_last(kBytes); }), 1.3);
  EXPECT_LE(ratio(2 * kAll * 1000 / 1024, [] { traffic::copy_rows_with_gaps(kBytes); }), 1.3);
}

}  // namespace
