// Client, the job's key-value store for users: versions of values, queues, typed values, waits and their
// errors; and group_barrier, the barrier through the store. Ranks are threads.
#include "gradus/distributed/group/client.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST(Client, NeedsAJob) {
  EXPECT_THAT(error_of<Error>([] { get_client(); }), HasSubstr("call init_process_group first"));
  group_barrier();  // of one: nothing to wait for
}

TEST(Client, CountsVersionsSoThatALoopReadsNoStaleValue) {
  run_ranks(3, [] {
    Client client = get_client();
    for (int version = 1; version <= 100; ++version) {
      if (get_rank() == 0) {
        EXPECT_EQ(client.user_set("step", std::to_string(version)), version);
      }
      EXPECT_GE(std::stoi(client.user_get("step", version)), version);
    }
  });
}

TEST(Client, GivesTheLatestVersionToWhoAsksForAnEarlierOne) {
  run_ranks(1, [] {
    Client client = get_client();
    for (int i = 1; i <= 40; ++i) client.user_set("key", std::to_string(i));
    EXPECT_EQ(client.user_get("key"), "40");
    EXPECT_EQ(client.user_get("key", 3), "40");
    EXPECT_THAT(error_of<Error>([&] { client.user_get("key", 41, Milliseconds(50)); }),
                HasSubstr("[user_get] nobody set 'key' (version 41) within 50 ms"));
  });
}

TEST(Client, LosesNoVersionWhenSeveralSet) {
  run_ranks(4, [] {
    for (int i = 0; i < 25; ++i) get_client().user_set("key", "same");
    barrier();
    if (get_rank() == 3) {
      EXPECT_EQ(get_client().user_set("key", "last"), 101);
    }
  });
}

TEST(Client, QueueKeepsTheOrder) {
  run_ranks(2, [] {
    Client client = get_client();
    for (int i = 0; i < 10; ++i) {
      if (get_rank() == 0) client.user_push("work", std::to_string(i));
      if (get_rank() == 1) {
        EXPECT_EQ(client.user_pop("work"), std::to_string(i));
      }
    }
  });
}

TEST(Client, WhoGivesUpWaitingTakesNothing) {
  run_ranks(1, [] {
    Client client = get_client();
    EXPECT_THAT(error_of<Error>([&] { client.user_pop("work", Milliseconds(50)); }),
                HasSubstr("[user_pop] nobody set 'work' within 50 ms"));
    client.user_push("work", "a");
    EXPECT_EQ(client.user_pop("work"), "a");
  });
}

TEST(Client, PopTakesWhatWasSet) {
  run_ranks(2, [] {
    Client client = get_client();
    if (get_rank() == 0) {
      client.user_set("key", "first");
      client.user_set("key", "second");  // in place of the first
      EXPECT_EQ(client.user_get("key"), "second");
      client.user_set("set", "yes");
    } else {
      client.user_get("set");
      EXPECT_EQ(client.user_pop("key"), "second");
      EXPECT_THAT(error_of<Error>([&] { client.user_pop("key", Milliseconds(20)); }),
                  HasSubstr("nobody set 'key'"));
      EXPECT_THAT(error_of<Error>([&] { client.user_get("key", 1, Milliseconds(20)); }),
                  HasSubstr("nobody set 'key'"));
      EXPECT_EQ(client.user_set("key", "third"), 3);
      EXPECT_EQ(client.user_get("key"), "third");
    }
  });
}

TEST(Client, SetAndPushWriteTheSameValues) {
  run_ranks(1, [] {
    Client client = get_client();
    EXPECT_EQ(client.user_set("key", "a"), 1);
    client.user_push("key", "b");
    client.user_push("key", "c");
    EXPECT_EQ(client.user_get("key"), "c");
    EXPECT_EQ(client.user_pop("key"), "a");
    EXPECT_EQ(client.user_get("key", 2), "c");
    EXPECT_EQ(client.user_set("key", "d"), 4);
    EXPECT_EQ(client.user_pop("key"), "d");
    EXPECT_LE(client.store().num_keys(), 2) << "values that are gone leave nothing";
  });
}

TEST(Client, ValuesHaveTypes) {
  run_ranks(2, [] {
    Client client = get_client();
    const Tensor x = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
    if (get_rank() == 0) {
      client.user_set("shape", x.shape());
      client.user_set("step", int64_t{7});
      client.user_push("names", std::vector<std::string>{"a", "b"});
      client.user_set("x", x);
      client.user_set("text", std::string_view("t\0t", 3));
    } else {
      EXPECT_EQ(client.user_get<Shape>("shape"), Shape({2, 3}));
      EXPECT_EQ(client.user_pop<std::vector<std::string>>("names"), (std::vector<std::string>{"a", "b"}));
      EXPECT_EQ(client.user_get<Tensor>("x").to_vector<float>(), x.to_vector<float>());
      EXPECT_EQ(client.user_get("text"), std::string("t\0t", 3));
      EXPECT_THAT(error_of<Error>([&] { client.user_get<double>("step"); }),
                  HasSubstr("[user_get] 'step' has a value of type long, not double"));
      EXPECT_THAT(error_of<Error>([&] { client.user_pop("shape"); }),
                  HasSubstr("[user_pop] 'shape' has a value of type Dims, not string"));
      EXPECT_EQ(client.user_pop<Shape>("shape"), Shape({2, 3})) << "it stayed where it was";
      EXPECT_EQ(client.user_get<int64_t>("step"), 7);
    }
    barrier();
  });
}

TEST(Client, AValueThatDoesNotFitLeavesNoGap) {
  run_ranks(1, [] {
    Client client = get_client();
    client.user_push("key", "a");
    EXPECT_THROW(client.user_push("key", std::string(StoreLimits::kValueBytes + 1, 'x')), StoreError);
    client.user_push("key", "b");
    EXPECT_EQ(client.user_get("key"), "b");
    EXPECT_EQ(client.user_pop("key"), "a");
    EXPECT_EQ(client.user_pop("key"), "b");
  });
}

// Ranks set, push and pop the same key concurrently. No value is popped twice.
TEST(Client, EachValueIsTakenOnceWhateverOthersDo) {
  std::mutex mutex;
  std::vector<std::string> taken;
  run_ranks(4, [&] {
    Client client = get_client();
    for (int i = 0; i < 50; ++i) {
      const std::string mine = concat(get_rank(), '.', i);
      if (i % 5 == get_rank())
        client.user_set("key", mine);
      else
        client.user_push("key", mine);
      try {
        const std::string value = client.user_pop("key", Milliseconds(0));
        std::lock_guard lock(mutex);
        taken.push_back(value);
      } catch (const TimeoutError&) {  // replaced or taken by others
      }
    }
    client.user_set(concat("done", get_rank()), "");
    for (int rank = 0; rank < 4; ++rank) client.user_get(concat("done", rank));
    if (get_rank() == 0) {
      client.user_set("key", "last");
      EXPECT_EQ(client.user_get("key"), "last");
      EXPECT_EQ(client.user_pop("key"), "last");
    }
  });
  std::ranges::sort(taken);
  EXPECT_EQ(std::ranges::unique(taken).begin(), taken.end());
  EXPECT_GT(taken.size(), 0u);
}

// Calls without a timeout that wait for a key that no rank sets, and the text of their errors.
const std::vector<std::pair<std::string, std::function<void()>>> kWaits = {
    {"[user_get] nobody set 'never'", [] { get_client().user_get("never"); }},
    {"[user_pop] nobody set 'never'", [] { get_client().user_pop("never"); }},
    {"[get] nobody set 'never'", [] { get_client().store().get("never"); }},
    {"[pop] nobody set 'never'", [] { get_client().store().pop("never"); }},
    {"[wait] nobody set 'never'", [] { get_client().store().wait({"never"}); }},
};

TEST(Client, WaitsHaveTheJobsTimeout) {
  for (const auto& [text, wait] : kWaits) {
    const auto errors = errors_of(2,
                                  [&] {
                                    if (get_rank() == 0) wait();
                                    barrier({.timeout = Milliseconds(20'000)});
                                  },
                                  {.timeout = Milliseconds(300)});
    EXPECT_THAT(errors[0], AllOf(HasSubstr(text), HasSubstr("within 300 ms")));
  }
}

TEST(Client, WaitsEndWhenNobodyIsLeftWhoCouldSetTheKey) {
  for (const auto& [text, wait] : kWaits) {
    const auto start = std::chrono::steady_clock::now();
    const auto errors = errors_of(3, [&] {
      get_client().user_set(concat("from ", get_rank()), "x");
      if (get_rank() == 1) {
        EXPECT_EQ(get_client().user_get("from 0"), "x");
        EXPECT_EQ(get_client().user_get("from 2"), "x") << "what they set before they left counts";
        wait();
      }
    });
    EXPECT_THAT(errors[1], AllOf(HasSubstr(text), HasSubstr("all other ranks have left the job")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "the timeout is 20 s";
  }
}

TEST(Client, WaitsEndWithTheJob) {
  const auto errors = errors_of(2, [] {
    if (get_rank() == 1) throw ValueError("load", "no such file");
    get_client().user_get("never");
  });
  EXPECT_THAT(errors[0], HasSubstr("[user_get] rank 1 failed: ValueError: [load] no such file"));
}

TEST(GroupBarrier, WaitsForAll) {
  std::atomic<int> arrived{0};
  run_ranks(4, [&] {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      group_barrier();
      EXPECT_GE(arrived.load(), 4 * round);
    }
  });
}

TEST(GroupBarrier, NamesThoseWhoWaitForEachOther) {
  const auto errors = errors_of(4, [] {
    if (get_rank() < 2) group_barrier();
    barrier();
  });
  EXPECT_THAT(
      errors,
      Each(AllOf(HasSubstr("ranks 0, 1 or ranks 2, 3 hold up barrier #1 of group 'world', which cannot "
                           "end: they wait for each other: rank 0: it is in group_barrier of group "
                           "'world', where it waits for ranks 2, 3; rank 1: "),
                 HasSubstr("rank 2: it is in barrier #1 of group 'world', where it waits for ranks 0, "
                           "1; rank 3: "))));
}

TEST(GroupBarrier, OfASubgroupWaitsForItsMembers) {
  run_ranks(4, [] {
    const Group pair = new_group({1, 2});
    if (pair.is_member()) {
      for (int i = 0; i < 3; ++i) group_barrier(pair);
    } else {
      EXPECT_THROW(group_barrier(pair), ValueError);
    }
  });
}

TEST(GroupBarrier, LeavesNoKeys) {
  run_ranks(3, [] {
    Store& store = get_client().store();
    barrier();
    const int64_t before = store.num_keys();
    barrier();
    for (int i = 0; i < 10; ++i) {
      const Group group = new_group({0, 1, 2});
      Tensor x = ones({2});
      all_reduce(x, {.group = group});
      for (int j = 0; j <= i % 2; ++j) group_barrier(group);
    }
    barrier();
    EXPECT_EQ(store.num_keys(), before);
    barrier();
  });
}

TEST(GroupBarrier, SaysThatARankHasLeft) {
  const auto errors = errors_of(3, [] {
    if (get_rank() != 1) group_barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("[group_barrier] rank 1 has left the job"));
  EXPECT_THAT(errors[2], HasSubstr("[group_barrier] rank 1 has left the job"));
}

}  // namespace
}  // namespace gradus::dist
