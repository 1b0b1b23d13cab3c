// The contract of Store, for all implementations (memory, file, TCP, with a prefix, guarded by a membership),
// and what is particular to file stores: damaged files, permissions.
#include "gradus/distributed/base/store.h"
#include "gradus/distributed/store/memory_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "gradus/distributed/store/file_store.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Milliseconds kShort{50}, kLong{20'000};  // limits of waits that must fail, and must succeed

// The shared data of a store. open() returns a handle, as each rank has one.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::shared_ptr<Store> open() = 0;
};

class MemoryPlace final : public Place {
  std::shared_ptr<Store> open() override { return store_; }
  const std::shared_ptr<Store> store_ = make_memory_store();
};

class FilePlace final : public Place {
 public:
  FilePlace() {
    std::string pattern = testing::TempDir() + "gradus_store_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FilePlace() override { std::filesystem::remove_all(folder_); }
  std::shared_ptr<Store> open() override { return open_file_store(path(), kLong); }
  std::string path() const { return folder_ + "/store"; }

 private:
  std::string folder_;
};

class TcpPlace : public Place {
 public:
  std::shared_ptr<Store> open() override { return connect_tcp_store(address(), kLong); }
  StoreAddress address() const { return {.host = "127.0.0.1", .port = server_.port()}; }

 private:
  StoreServer server_{{}};
};

class PrefixPlace final : public TcpPlace {
  std::shared_ptr<Store> open() override { return prefix_store("a", TcpPlace::open()); }
};

class GuardedPlace final : public TcpPlace {
  std::shared_ptr<Store> open() override { return guarded_store(TcpPlace::open(), membership_); }
  std::shared_ptr<Membership> membership_ = join_tcp(address(), 0, 1, kLong);
};

struct Kind {
  const char* name;
  std::unique_ptr<Place> (*make)();
};
template <class P> std::unique_ptr<Place> make() { return std::make_unique<P>(); }

class StoreTest : public testing::TestWithParam<Kind> {
 protected:
  std::shared_ptr<Store> open() {
    auto store = place_->open();
    store->set_timeout(kLong);
    return store;
  }
  const std::unique_ptr<Place> place_ = GetParam().make();
  const std::shared_ptr<Store> store_ = open();
};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest,
                         testing::Values(Kind{"memory", make<MemoryPlace>}, Kind{"file", make<FilePlace>},
                                         Kind{"tcp", make<TcpPlace>}, Kind{"prefix", make<PrefixPlace>},
                                         Kind{"guarded", make<GuardedPlace>}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(StoreTest, ReturnsWhatWasSetLast) {
  store_->set("key", "one");
  store_->set("key", "two");
  EXPECT_EQ(open()->get("key"), "two");
  EXPECT_EQ(store_->get("key"), "two") << "getting does not take away";
}

TEST_P(StoreTest, TakesAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  store_->set(bytes, bytes);
  store_->set("", "the empty key");
  store_->set("empty value", "");
  EXPECT_EQ(open()->get(bytes), bytes);
  EXPECT_EQ(open()->get(""), "the empty key");
  EXPECT_EQ(open()->get("empty value"), "");
}

TEST_P(StoreTest, GetWaitsUntilSomebodySetsTheKey) {
  std::string got;
  std::thread waiter([&, store = open()] { got = store->get("late"); });
  std::this_thread::sleep_for(kShort);
  store_->set("late", "value");
  waiter.join();
  EXPECT_EQ(got, "value");
}

TEST_P(StoreTest, PopTakesTheValueAway) {
  store_->set("key", "value");
  EXPECT_EQ(open()->pop("key"), "value");
  EXPECT_FALSE(store_->check({"key"}));
}

TEST_P(StoreTest, EachValueIsPoppedOnce) {
  constexpr int kTakers = 4, kEach = 5;
  std::mutex mutex;
  std::multiset<std::string> taken;
  std::vector<std::thread> takers;
  for (int i = 0; i < kTakers; ++i)
    takers.emplace_back([&, store = open()] {
      for (int j = 0; j < kEach; ++j) {
        std::string value = store->pop("slot");
        std::lock_guard lock(mutex);
        taken.insert(std::move(value));
      }
    });
  for (int n = 0; n < kTakers * kEach; ++n) {
    // The next value may not replace one that nobody has taken yet.
    while (store_->check({"slot"})) std::this_thread::sleep_for(Milliseconds(1));
    store_->set("slot", std::to_string(n));
  }
  for (auto& taker : takers) taker.join();
  EXPECT_EQ(taken.size(), size_t{kTakers * kEach});
  EXPECT_EQ(std::set(taken.begin(), taken.end()).size(), taken.size());
}

TEST_P(StoreTest, AddCountsFromZeroAndKeepsDecimalText) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(open()->add("n", -7), -2);
  EXPECT_EQ(store_->get("n"), "-2");
  store_->set("n", "40");
  EXPECT_EQ(store_->add("n", 2), 42);
}

TEST_P(StoreTest, AddRefusesWhatIsNoNumber) {
  for (const char* text : {"four", "4 ", "4.0", "0x4", "99999999999999999999"}) {
    store_->set("n", text);
    EXPECT_THAT(error_of<StoreError>([&] { store_->add("n", 1); }), HasSubstr("n', which holds '"));
    EXPECT_EQ(store_->get("n"), text) << "it is as it was";
  }
  store_->set("n", "9223372036854775807");
  EXPECT_THROW(store_->add("n", 1), StoreError);
}

TEST_P(StoreTest, AddsOfManyClientsAllCount) {
  constexpr int kClients = 6, kEach = 50;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([store = open()] {
      for (int j = 0; j < kEach; ++j) store->add("n", 1);
    });
  for (auto& client : clients) client.join();
  EXPECT_EQ(store_->get("n"), std::to_string(kClients * kEach));
}

TEST_P(StoreTest, OneHandleServesManyThreads) {
  constexpr int kThreads = 12;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      const std::string next = std::to_string((i + 1) % kThreads);
      if (i > 0) store_->get(std::to_string(i));  // a chain of waits
      store_->set(next, "from " + std::to_string(i));
      right += store_->get(std::to_string(i)).starts_with("from ");
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads);
}

TEST_P(StoreTest, CompareSetSetsOnlyWhatItExpects) {
  EXPECT_EQ(store_->compare_set("key", "other", "new"), "") << "absent, and not expected to be";
  EXPECT_FALSE(store_->check({"key"}));
  EXPECT_EQ(store_->compare_set("key", "", "first"), "first") << "absent, as expected";
  EXPECT_EQ(store_->compare_set("key", "", "second"), "first");
  EXPECT_EQ(store_->compare_set("key", "first", "second"), "second");
  EXPECT_EQ(open()->get("key"), "second");
}

TEST_P(StoreTest, AppendReturnsTheNewLength) {
  EXPECT_EQ(store_->append("key", "ab"), 2);
  EXPECT_EQ(open()->append("key", "cde"), 5);
  EXPECT_EQ(store_->get("key"), "abcde");
}

TEST_P(StoreTest, WaitReturnsWhenAllKeysAreThere) {
  store_->set("a", "");
  std::atomic<bool> done{false};
  std::thread waiter([&, store = open()] {
    store->wait({"a", "b", "c"});
    done = true;
  });
  store_->set("c", "");
  std::this_thread::sleep_for(kShort);
  EXPECT_FALSE(done);
  store_->add("b", 1);  // any operation that creates the key ends the wait
  waiter.join();
  EXPECT_TRUE(done);
  store_->wait({});
}

TEST_P(StoreTest, EveryOperationThatMakesAKeyEndsWaitsForIt) {
  const std::vector<std::function<void()>> makers = {
      [&] { store_->set("k", "1"); }, [&] { store_->add("k", 1); }, [&] { store_->append("k", "1"); },
      [&] { store_->compare_set("k", "", "1"); }};
  for (const auto& maker : makers) {
    std::string got;
    std::thread waiter([&, store = open()] { got = store->pop("k"); });
    std::this_thread::sleep_for(Milliseconds(10));
    maker();
    waiter.join();
    EXPECT_EQ(got, "1");
  }
}

TEST_P(StoreTest, CheckAndDeleteAndCountKeys) {
  EXPECT_TRUE(store_->check({}));
  EXPECT_FALSE(store_->check({"a"}));
  const int64_t before = store_->num_keys();
  store_->set("a", "1");
  store_->set("b", "2");
  EXPECT_EQ(open()->num_keys(), before + 2);
  EXPECT_TRUE(store_->check({"a", "b"}));
  EXPECT_FALSE(store_->check({"a", "c"}));
  EXPECT_TRUE(open()->delete_key("a"));
  EXPECT_FALSE(store_->delete_key("a"));
  EXPECT_FALSE(store_->check({"a"}));
  EXPECT_EQ(store_->num_keys(), before + 1);
}

TEST_P(StoreTest, ManyKeysAtOnce) {
  store_->multi_set({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  EXPECT_THAT(open()->multi_get({"c", "a", "b"}), ElementsAre("3", "1", "2"));
  EXPECT_THAT(error_of<TimeoutError>([&] {
                store_->multi_get({"a", "d"}, kShort);
              }),
              AllOf(HasSubstr("d'"), Not(HasSubstr(", "))));
}

TEST_P(StoreTest, TimeoutsNameTheKeyAndTheTime) {
  EXPECT_THAT(error_of<TimeoutError>([&] { store_->get("nowhere", kShort); }),
              AllOf(HasSubstr("[get]"), HasSubstr("nowhere'"), HasSubstr("50 ms")));
  EXPECT_THAT(error_of<TimeoutError>([&] { store_->pop("nowhere", kShort); }),
              AllOf(HasSubstr("[pop]"), HasSubstr("nowhere'")));
  store_->set("here", "");
  EXPECT_THAT(
      error_of<TimeoutError>([&] {
        store_->wait({"here", "nowhere", "never"}, kShort);
      }),
      AllOf(HasSubstr("[wait]"), HasSubstr("nowhere'"), HasSubstr("never'"), Not(HasSubstr("'here'"))));
  store_->set_timeout(kShort);
  EXPECT_THROW(store_->get("nowhere"), TimeoutError);
  EXPECT_THROW(store_->get("nowhere", Milliseconds(0)), TimeoutError);
  EXPECT_EQ(store_->get("here", Milliseconds(0)), "") << "no time is needed for what is there";
}

TEST_P(StoreTest, TimeoutsComeInTime) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(store_->get("nowhere", Milliseconds(300)), TimeoutError);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, Milliseconds(300));
  EXPECT_LT(took, Milliseconds(2300));
}

TEST_P(StoreTest, LimitsOfKeysAndValues) {
  const std::string long_key(StoreLimits::kKeyBytes + 1, 'k');
  EXPECT_THROW(store_->set(long_key, ""), StoreError);
  EXPECT_THROW(store_->add(long_key, 1), StoreError);
  const std::string longest(StoreLimits::kKeyBytes - 10, 'k');  // room for a prefix
  store_->set(longest, "value");
  EXPECT_EQ(store_->get(longest), "value");

  std::string big(StoreLimits::kValueBytes, 'v');
  store_->set("big", big);
  EXPECT_EQ(open()->get("big").size(), big.size());
  EXPECT_THROW(store_->append("big", "v"), StoreError);
  big += 'v';
  EXPECT_THROW(store_->set("other", big), StoreError);
  EXPECT_FALSE(store_->check({"other"}));
  EXPECT_EQ(store_->get(longest), "value") << "and goes on";
}

// ---- single implementations

TEST(FileStoreTest, DamagedFilesAreErrorsThatNameThem) {
  FilePlace place;
  const auto write = [&](const std::string& bytes) {
    std::ofstream(place.path(), std::ios::binary) << bytes;
  };
  place.open()->set("key", "value");
  std::string good;
  {
    std::ifstream file(place.path(), std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  ASSERT_EQ(place.open()->get("key"), "value");

  for (size_t n = 1; n < good.size(); ++n) {
    if (n == std::string("gradus store 2\n").size()) continue;  // an empty store
    write(good.substr(0, n));
    EXPECT_THAT(error_of<StoreError>([&] { place.open(); }), HasSubstr(place.path())) << "cut at " << n;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x41;
    write(bad);
    EXPECT_THROW(place.open(), StoreError) << "byte " << i;
  }
  write("something else\n" + std::string(100, 'x'));
  EXPECT_THROW(place.open(), StoreError);
}

TEST(FileStoreTest, AShorterFileIsNoticed) {
  FilePlace place;
  auto store = place.open();
  store->set("key", "value");
  std::filesystem::resize_file(place.path(), 20);
  EXPECT_THAT(error_of<StoreError>([&] { store->get("key"); }), HasSubstr("shorter"));
}

// A temporary folder directly in /tmp, which other users can reach.
class OpenFolder {
 public:
  OpenFolder() {
    if (!mkdtemp(path_.data())) std::abort();
  }
  ~OpenFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string path_ = "/tmp/gradus_store_XXXXXX";
};

std::string refusal(const std::string& path) {
  return error_of<FileError>([&] { open_file_store(path, kLong); });
}

TEST(FileStoreTest, TheFileMustBeThisUsersAlone) {
  OpenFolder folder;
  const std::string path = folder / "store";
  open_file_store(path, kLong)->set("key", "value");
  EXPECT_EQ(open_file_store(path, kLong)->get("key"), "value");
  for (const mode_t mode : {0644, 0620, 0602}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(refusal(path), HasSubstr(path + " is a file that others may read or write"));
  }
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  std::filesystem::create_symlink(path, folder / "symbolic");
  EXPECT_THAT(refusal(folder / "symbolic"), HasSubstr("is a symbolic link"));
  std::filesystem::create_hard_link(path, folder / "hard");
  EXPECT_THAT(refusal(folder / "hard"), HasSubstr("(a hard link)"));
  EXPECT_THAT(refusal(path), HasSubstr("(a hard link)"));
  std::filesystem::remove(folder / "hard");
  EXPECT_EQ(open_file_store(path, kLong)->get("key"), "value");
  if (geteuid() != 0 || chown(path.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "the rest needs root";
  EXPECT_THAT(refusal(path), HasSubstr(path + " is a file of another user (65534)"));
}

TEST(FileStoreTest, TheFolderMustNotBeOthers) {
  OpenFolder folder;
  const std::string path = folder / "store";
  for (const mode_t mode : {0777, 0770, 0702}) {
    ASSERT_EQ(chmod(folder.path_.c_str(), mode), 0);
    EXPECT_THAT(refusal(path), HasSubstr(path + " is in a folder that others may write"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_EQ(chmod(folder.path_.c_str(), 01777), 0);  // as /tmp
  open_file_store(path, kLong)->set("key", "value");
  std::filesystem::create_directory_symlink(folder.path_, folder / "link");
  EXPECT_EQ(open_file_store(folder / "link/store", kLong)->get("key"), "value");
  if (geteuid() != 0 || chown(folder.path_.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "the rest needs root";
  EXPECT_THAT(refusal(path), HasSubstr("is in a folder of another user (65534)"));
}

TEST(FileStoreTest, WhatCannotBeOpenedIsAFileError) {
  EXPECT_THROW(open_file_store("/nonexistent/folder/store", kLong), FileError);
  EXPECT_THROW(open_file_store(testing::TempDir(), kLong), FileError);
  EXPECT_THROW(open_file_store("/dev/null", kLong), FileError);
}

TEST(PrefixStoreTest, UsersOfOneStoreStayApart) {
  auto store = make_memory_store();
  auto a = prefix_store("a", store), b = prefix_store("b", store);
  a->set("key", "1");
  EXPECT_FALSE(b->check({"key"}));
  b->set("key", "2");
  EXPECT_EQ(a->get("key"), "1");
  EXPECT_EQ(store->get("b/key"), "2");
}

}  // namespace
}  // namespace gradus::dist
