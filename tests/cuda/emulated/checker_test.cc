// The checker finds each planted fault in every order, and nothing in kernels that are right.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>

#include "gradus/tensor/cuda/emulated/counters.h"
#include "gradus/tensor/cuda/emulated/order.h"
#include "gradus/tensor/cuda/error.h"
#include "planted.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

constexpr uint64_t kSeeds = 20;

TEST(Checker, FindsEachFaultInEveryOrderAndNothingElse) {
  for (const planted::Case& c : planted::cases()) {
    SCOPED_TRACE(c.name);
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      set_seed(seed);
      FaultScope faults;
      const bool right = c.run();
      const std::vector<Fault> found = faults.take();
      if (!c.fault) {
        EXPECT_TRUE(right) << "seed " << seed;
        EXPECT_TRUE(found.empty()) << found[0].text;
        continue;
      }
      ASSERT_EQ(found.size(), 1u) << "seed " << seed;
      // In some orders a race is that nobody has written yet what a thread reads.
      if (c.fault == FaultKind::kRace && found[0].kind == FaultKind::kUnwritten) continue;
      EXPECT_EQ(found[0].kind, *c.fault) << found[0].text;
      EXPECT_NE(found[0].text.find(c.says), std::string::npos) << found[0].text;
    }
  }
}

TEST(Launch, OutOfLimitsIsAnErrorThatNamesTheOp) {
  planted::launch_nothing(1, 1024, 232448);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (const auto& [blocks, threads, bytes] :
       {std::array<int64_t, 3>{0, 1, 0}, {1, 1025, 0}, {1, 0, 0}, {1, 1, 232449}}) {
    try {
      planted::launch_nothing(blocks, static_cast<int>(threads), bytes);
      ADD_FAILURE() << blocks << " blocks, " << threads << " threads, " << bytes << " bytes";
    } catch (const gradus::cuda::CudaError& e) {
      EXPECT_EQ(e.status, cudaErrorInvalidValue);
      EXPECT_STREQ(e.what(), "[planted] launch failed on cuda:0: invalid argument (cudaErrorInvalidValue)");
    }
  }
  cudaGetLastError();
}

}  // namespace
