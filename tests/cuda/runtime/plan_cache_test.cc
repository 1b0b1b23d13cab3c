// PlanCache, the LRU cache of a device's convolution plans: eviction, plans in use, and threads that wait for
// a plan that another one makes.
#include "gradus/tensor/cuda/cudnn/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gradus::cuda {
namespace {

using std::chrono::seconds;

ConvKey key(int64_t n) {
  ConvKey k;
  k.x = {n};
  return k;
}

// A cache of `most` plans; plan n has workspace n. Logs the plans that were made.
struct Plans {
  explicit Plans(size_t most) : cache(most) {}
  PlanCache::Plan get(int64_t n) {
    return cache.get(key(n), [&] {
      made.push_back(n);
      return ConvPlan{{}, n, {}};
    });
  }
  PlanCache cache;
  std::vector<int64_t> made;
};

TEST(PlanCache, KeepsThoseThatWereUsedLast) {
  Plans plans(2);
  for (const int64_t n : {1, 2, 1, 3, 1, 2, 1, 3}) EXPECT_EQ(plans.get(n)->workspace, n);
  EXPECT_EQ(plans.made, (std::vector<int64_t>{1, 2, 3, 2, 3}));
}

TEST(PlanCache, WhoUsesAPlanHoldsIt) {
  Plans plans(1);
  PlanCache::Plan held = plans.get(1);
  const std::weak_ptr<const ConvPlan> plan = held;
  plans.get(2);
  EXPECT_EQ(held->workspace, 1);
  held = nullptr;
  EXPECT_TRUE(plan.expired());
}

TEST(PlanCache, OthersFindTheirsWhileOneIsMade) {
  Plans plans(2);
  plans.get(1);
  std::promise<void> begun, found;
  std::thread other([&] {
    plans.cache.get(key(2), [&] {
      begun.set_value();
      EXPECT_EQ(found.get_future().wait_for(seconds(20)), std::future_status::ready) << "the others wait";
      return ConvPlan{};
    });
  });
  begun.get_future().wait();
  EXPECT_EQ(plans.get(1)->workspace, 1);
  found.set_value();
  other.join();
  EXPECT_EQ(plans.made.size(), 1u);
}

TEST(PlanCache, ThreadsThatAskForOnePlanGetOne) {
  PlanCache cache(2);
  std::atomic<int> made = 0;
  const auto get = [&] {
    return cache.get(key(1), [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return ConvPlan{{}, ++made, {}};
    });
  };
  std::vector<std::future<PlanCache::Plan>> asked;
  for (int i = 0; i < 4; ++i) asked.push_back(std::async(std::launch::async, get));
  const PlanCache::Plan plan = get();
  for (auto& a : asked) EXPECT_EQ(a.get(), plan);
  EXPECT_EQ(made, 1);
}

TEST(PlanCache, AFailureLeavesNothing) {
  Plans plans(2);
  const auto fail = []() -> ConvPlan { throw std::runtime_error("no plan"); };
  EXPECT_THROW(plans.cache.get(key(1), fail), std::runtime_error);
  EXPECT_EQ(plans.get(1)->workspace, 1);
  EXPECT_EQ(plans.made.size(), 1u);
}

TEST(PlanCache, ForgetsAll) {
  Plans plans(2);
  const PlanCache::Plan held = plans.get(1);
  plans.get(2);
  plans.cache.clear();
  EXPECT_EQ(held->workspace, 1);
  plans.get(2), plans.get(1), plans.get(2);
  EXPECT_EQ(plans.made, (std::vector<int64_t>{1, 2, 2, 1}));
}

// A plan that was begun before clear() may be outdated, and is not kept.
TEST(PlanCache, ForgetsAlsoWhatIsBeingMade) {
  Plans plans(2);
  std::promise<void> begun;
  std::thread other([&] {
    plans.cache.get(key(1), [&] {
      begun.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return ConvPlan{};
    });
  });
  begun.get_future().wait();
  plans.cache.clear();
  other.join();
  EXPECT_EQ(plans.get(1)->workspace, 1);
}

// Each part of a key counts.
TEST(PlanCache, TellsKeysApart) {
  const ConvKey one{ConvPass::kForward, DType::kF32, false, false, false,          {1, 2, 3},
                    {2, 2, 1},          {1},         {0},   {1},   {16, 16, 16, 0}};
  std::vector<ConvKey> all(12, one);
  all[1].pass = ConvPass::kInputGrad, all[2].dtype = DType::kF16, all[3].tf32 = true, all[4].x = {1, 2, 4};
  all[5].w = {2, 2, 2}, all[6].stride = {2}, all[7].padding = {1}, all[8].dilation = {2};
  all[9].alignments = {16, 16, 16, 16}, all[10].relu = true;
  all[11].deterministic = true;
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < all.size(); ++b) {
      EXPECT_EQ(all[a] == all[b], a == b) << a << ' ' << b;
      EXPECT_EQ((all[a] <=> all[b]) == 0, a == b) << a << ' ' << b;
      EXPECT_EQ(all[a]<all[b], all[b]> all[a]) << a << ' ' << b;
    }
}

}  // namespace
}  // namespace gradus::cuda
