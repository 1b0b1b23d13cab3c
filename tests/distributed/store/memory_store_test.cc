// The store of ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gradus/distributed/base/store.h"
#include "gradus/distributed/store/memory_store.h"

namespace gradus::dist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(MemoryStore, KeepsBytes) {
  const auto store = make_memory_store();
  const std::string bytes("a\0b", 3);
  store->set("k", bytes);
  EXPECT_EQ(store->get("k"), bytes);
  EXPECT_EQ(store->append("k", "c"), 4);
  EXPECT_TRUE(store->check({"k"}));
  EXPECT_FALSE(store->check({"k", "other"}));
  EXPECT_EQ(store->num_keys(), 1);
  EXPECT_TRUE(store->delete_key("k"));
  EXPECT_FALSE(store->delete_key("k"));
  EXPECT_EQ(store->num_keys(), 0);
}

TEST(MemoryStore, CountsAndCompares) {
  const auto store = make_memory_store();
  EXPECT_EQ(store->add("n", 3), 3);
  EXPECT_EQ(store->add("n", -5), -2);
  EXPECT_EQ(store->get("n"), "-2");
  EXPECT_EQ(store->compare_set("c", "", "a"), "a");
  EXPECT_EQ(store->compare_set("c", "x", "b"), "a");
  EXPECT_EQ(store->compare_set("c", "a", "b"), "b");
  EXPECT_THROW(store->add("c", 1), StoreError);
  store->set("n", "9223372036854775807");
  EXPECT_THROW(store->add("n", 1), StoreError);
}

TEST(MemoryStore, ATimeoutNamesTheMissingKeys) {
  const auto store = make_memory_store();
  store->set("a", "");
  EXPECT_THAT(
      [&] {
        store->wait({"a", "b", "c"}, Milliseconds(20));
      },
      ThrowsMessage<TimeoutError>("[wait] nobody set 'b', 'c' within 20 ms"));
  EXPECT_THROW(store->get("b", Milliseconds(0)), TimeoutError);
}

TEST(MemoryStore, AGetterWaitsForTheSetter) {
  const auto store = make_memory_store();
  std::thread setter([&] {
    std::this_thread::sleep_for(Milliseconds(20));
    store->set("k", "v");
  });
  EXPECT_EQ(store->get("k"), "v");
  setter.join();
}

TEST(MemoryStore, EachValueIsPoppedOnce) {
  const auto store = make_memory_store();
  constexpr int kValues = 300;
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> takers;
  for (int t = 0; t < 3; ++t)
    takers.emplace_back([&] {
      for (int i = 0; i < kValues / 3; ++i) sum += std::stoll(store->pop("k"));
    });
  for (int i = 1; i <= kValues; ++i) {
    while (store->check({"k"})) std::this_thread::yield();
    store->set("k", std::to_string(i));
  }
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(sum, kValues * (kValues + 1) / 2);
}

TEST(MemoryStore, LimitsAreErrorsThatNameTheKey) {
  const auto store = make_memory_store();
  EXPECT_THROW(store->set(std::string(StoreLimits::kKeyBytes + 1, 'k'), ""), StoreError);
  EXPECT_THAT([&] { store->set("big", std::string(StoreLimits::kValueBytes + 1, 'v')); },
              ThrowsMessage<StoreError>(HasSubstr("key 'big'")));
  EXPECT_EQ(store->num_keys(), 0);
}

TEST(PrefixStore, KeepsUsersApart) {
  const auto store = make_memory_store();
  const auto a = prefix_store("a", store), b = prefix_store("b", store);
  a->set("k", "1");
  b->multi_set({{"k", "2"}, {"l", "3"}});
  EXPECT_EQ(a->get("k"), "1");
  EXPECT_THAT(b->multi_get({"k", "l"}), ElementsAre("2", "3"));
  EXPECT_FALSE(a->check({"l"}));
  EXPECT_EQ(store->get("b/l"), "3");
  a->set_timeout(Milliseconds(10));
  EXPECT_THROW(a->get("l"), TimeoutError);
}

}  // namespace
}  // namespace gradus::dist
