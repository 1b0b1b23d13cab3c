#include "gradus/distributed/client.h"

#include <gmock/gmock.h>

#include <thread>

#include "gradus/distributed/collectives.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class F>
std::string text_of_error(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Client, NeedsAJob) {
  EXPECT_THAT(text_of_error([] { get_client(); }), HasSubstr("call init_process_group first"));
  group_barrier();  // of one: nothing to wait for
}

TEST(Client, TellsOthers) {
  run_ranks(3, [] {
    if (get_rank() == 1) {
      EXPECT_EQ(get_client().user_set("best", "0.98"), 1);
    }
    EXPECT_EQ(get_client().user_get("best"), "0.98");
  });
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
    EXPECT_THAT(text_of_error([&] { client.user_get("key", 41, Milliseconds(50)); }),
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

TEST(Client, QueueGivesEachValueOnce) {
  std::mutex mutex;
  std::vector<std::string> taken;
  run_ranks(4, [&] {
    Client client = get_client();
    for (int i = 0; i < 10; ++i) client.user_push("work", std::to_string(get_rank() * 10 + i));
    for (int i = 0; i < 10; ++i) {
      const std::string item = client.user_pop("work");
      std::lock_guard lock(mutex);
      taken.push_back(item);
    }
  });
  std::ranges::sort(taken);
  EXPECT_EQ(std::ranges::unique(taken).begin(), taken.end());
  EXPECT_EQ(taken.size(), 40u);
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
    EXPECT_THAT(text_of_error([&] { client.user_pop("work", Milliseconds(50)); }),
                HasSubstr("[user_pop] nobody pushed to 'work' within 50 ms"));
    client.user_push("work", "a");
    EXPECT_EQ(client.user_pop("work"), "a");
  });
}

TEST(Client, HoldsEmptyAndLargeValues) {
  run_ranks(2, [] {
    Client client = get_client();
    const std::string large(5 << 20, 'x');
    if (get_rank() == 0) {
      client.user_set("empty", "");
      client.user_set("large", large);
      client.user_push("queue", "");
    } else {
      EXPECT_EQ(client.user_get("empty"), "");
      EXPECT_EQ(client.user_get("large"), large);
      EXPECT_EQ(client.user_pop("queue"), "");
    }
  });
}

TEST(Client, WaitsEndWithTheJob) {
  const auto errors = errors_of(2, [] {
    if (get_rank() == 1) throw ValueError("load", "no such file");
    get_client().user_get("never");
  });
  EXPECT_THAT(errors[0], HasSubstr("[user_get] rank 1 failed: [load] no such file"));
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

TEST(GroupBarrier, NamesTheMissingRanks) {
  run_ranks(4, [] {
    if (get_rank() < 2) {
      EXPECT_THAT(text_of_error([] { group_barrier({}, Milliseconds(100)); }),
                  HasSubstr("[group_barrier] ranks 2, 3 did not come to group 'world' within 100 ms"));
    }
    barrier();
    group_barrier();  // the same barrier, tried again
    monitored_barrier();
  });
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

TEST(GroupBarrier, SaysThatARankHasLeft) {
  const auto errors = errors_of(3, [] {
    if (get_rank() != 1) group_barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("[group_barrier] rank 1 has left the job"));
  EXPECT_THAT(errors[2], HasSubstr("[group_barrier] rank 1 has left the job"));
}

}  // namespace
}  // namespace gradus::dist
