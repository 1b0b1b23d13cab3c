// parallel_for on 4 threads: the division of ranges, exceptions, nested and concurrent calls.
#include "gradus/tensor/runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

// Tests with 4 threads.
class ParallelFor : public testing::Test {
 protected:
  ParallelFor() { context_.threads = 4; }

  // The subranges that the calls of parallel_for(begin, end, grain) get, in order.
  std::vector<std::pair<int64_t, int64_t>> shares(int64_t begin, int64_t end, int64_t grain) {
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> found;
    parallel_for(begin, end, grain, [&](int64_t b, int64_t e) {
      std::lock_guard lock(mutex);
      found.emplace_back(b, e);
    });
    std::sort(found.begin(), found.end());
    return found;
  }

  Context context_;
  ContextScope scope_{context_};
};

TEST_F(ParallelFor, SharesCoverTheRangeOnceAndAreNearlyEqual) {
  for (int64_t n : {2, 3, 4, 5, 17, 1000, 1001}) {
    const auto s = shares(-3, n - 3, 1);
    EXPECT_EQ(int64_t(s.size()), std::min<int64_t>(n, 4));
    EXPECT_EQ(s.front().first, -3);
    EXPECT_EQ(s.back().second, n - 3);
    for (size_t i = 0; i < s.size(); ++i) {
      EXPECT_EQ(s[i].first, i > 0 ? s[i - 1].second : -3);
      EXPECT_NEAR(double(s[i].second - s[i].first), double(n) / double(s.size()), 1.0);
    }
  }
}

TEST_F(ParallelFor, SmallRangesStayOnTheCallingThread) {
  const auto caller = std::this_thread::get_id();
  for (int64_t n : {1, 50, 100})
    parallel_for(0, n, 100, [&](int64_t b, int64_t e) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(b, 0);
      EXPECT_EQ(e, n);
    });
  EXPECT_EQ(shares(0, 0, 1).size(), 0u);
  EXPECT_EQ(shares(5, 3, 1).size(), 0u);
}

TEST_F(ParallelFor, NoShareIsHalfTheGrainOrSmaller) {
  for (int64_t n : {101, 150, 199, 201, 299, 301, 1000})
    for (const auto& [b, e] : shares(0, n, 100)) EXPECT_GE(2 * (e - b), 100) << n;
}

TEST_F(ParallelFor, AGrainBelowOneCountsAsOne) {
  EXPECT_EQ(shares(0, 8, 0).size(), 4u);
  EXPECT_EQ(shares(0, 8, -5).size(), 4u);
  EXPECT_EQ(shares(0, 1, 0).size(), 1u);
}

TEST_F(ParallelFor, SharesDependOnSizesAlone) {
  const auto first = shares(0, 12345, 7);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(shares(0, 12345, 7), first);
}

TEST_F(ParallelFor, AnExceptionOfAnyShareReachesTheCallerAfterAllHaveEnded) {
  for (int64_t thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> running{0};
    EXPECT_ERROR(ValueError,
                 parallel_for(0, 4, 1,
                              [&](int64_t b, int64_t) {
                                ++running;
                                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                --running;
                                if (b == thrower) throw ValueError("kernel", "share ", b);
                              }),
                 "[kernel] share");
    EXPECT_EQ(running, 0);
  }
  EXPECT_EQ(shares(0, 4, 1).size(), 4u) << "works after an exception";
}

TEST_F(ParallelFor, AllSharesMayThrow) {
  EXPECT_THROW(parallel_for(0, 4, 1, [](int64_t, int64_t) { throw ValueError("kernel", "no"); }), ValueError);
}

TEST_F(ParallelFor, ANestedOneRunsInItsShare) {
  std::atomic<int64_t> sum{0};
  parallel_for(0, 8, 1, [&](int64_t b, int64_t e) {
    const auto thread = std::this_thread::get_id();
    for (int64_t i = b; i < e; ++i)
      parallel_for(0, 100, 1, [&](int64_t ib, int64_t ie) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        for (int64_t k = ib; k < ie; ++k) sum += i * 100 + k;
      });
  });
  EXPECT_EQ(sum, 800 * 799 / 2);
}

TEST_F(ParallelFor, OneThreadMeansTheCallingOne) {
  set_num_threads(1);
  EXPECT_EQ(shares(0, 1000, 1).size(), 1u);
}

TEST_F(ParallelFor, ThreadsOfTheUsersMayCallItAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int64_t> sum{0};
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      Context context;
      context.threads = 2;
      const ContextScope scope(context);
      for (int round = 0; round < 50; ++round)
        parallel_for(0, 100, 1, [&](int64_t b, int64_t e) { sum += e - b; });
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(sum, 3 * 50 * 100);
}

}  // namespace
}  // namespace gradus
