// Futex, the signal on which ranks wait in shared memory: no lost wakeups between threads and processes,
// deadlines, failures of the job, and waiters that are killed.
#include "gradus/distributed/health/futex.h"

#include <gtest/gtest.h>

#include <thread>

#include "gradus/distributed/transport/segment.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/forked_process.h"

namespace gradus::dist::internal {
namespace {

using namespace std::chrono_literals;

// Parameter: whether waiters spin before they sleep (they do not with more ranks than cores).
class Signals : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { Futex::set_ranks_on_host(GetParam() ? 1 : 100'000); }
  void TearDown() override { Futex::set_ranks_on_host(1); }
  WaitLimits watch(Milliseconds timeout = 60s) const {
    return {memberships[0].get(), Deadline::after(timeout)};
  }
  std::vector<std::shared_ptr<Membership>> memberships = make_local_memberships(2);
};
INSTANTIATE_TEST_SUITE_P(, Signals, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Spinning" : "Sleeping"; });

// Two players wake each other in turn. A lost wakeup costs 50 ms, after which sleepers look again.
struct Table {
  Futex signal;
  std::atomic<int> turn{0};
};
void play(Table& table, int player, int turns, const WaitLimits& watch) {
  for (int i = player; i < turns; i += 2) {
    const auto my_turn = [&] { return table.turn.load(std::memory_order_acquire) == i; };
    ASSERT_EQ(table.signal.wait(watch, my_turn, "turn"), WaitResult::kReady);
    table.turn.store(i + 1, std::memory_order_seq_cst);
    table.signal.notify();
  }
}

TEST_P(Signals, NoWakeupIsLostBetweenThreads) {
  Table table;
  const TimePoint start = now();
  on_threads(2, [&](int player) { play(table, player, 5'000, watch()); });
  EXPECT_EQ(table.turn, 5'000);
  EXPECT_LT(now() - start, 10s);
}

TEST_P(Signals, NoWakeupIsLostBetweenProcesses) {
  Segment memory(4096);
  Table& table = *reinterpret_cast<Table*>(memory.data());
  const TimePoint start = now();
  ForkedProcess other([&] { play(table, 1, 5'000, watch()); });
  play(table, 0, 5'000, watch());
  EXPECT_EQ(other.wait(), 0);
  EXPECT_LT(now() - start, 10s);
}

TEST_P(Signals, AllWhoWaitAreWoken) {
  Table table;
  const TimePoint start = now();
  for (int i = 1; i <= 100; ++i)
    on_threads(5, [&](int rank) {
      if (rank != 0) {
        EXPECT_EQ(table.signal.wait(
                      watch(), [&] { return table.turn.load() == i; }, "test"),
                  WaitResult::kReady);
        return;
      }
      std::this_thread::sleep_for(2ms);
      table.turn = i;
      table.signal.notify();
    });
  EXPECT_LT(now() - start, 3s);  // 5 s, if all were woken by the 50 ms limit only
}

TEST_P(Signals, AWaitEndsAtItsDeadline) {
  Table table;
  for (const Milliseconds timeout : {0ms, 1ms, 120ms}) {
    const TimePoint start = now();
    EXPECT_EQ(table.signal.wait(
                  watch(timeout), [] { return false; }, "nothing"),
              WaitResult::kTimeout);
    EXPECT_GE(now() - start, timeout);
    EXPECT_LT(now() - start, timeout + 2s);
  }
}

TEST_P(Signals, AFailureThatNobodySignalsEndsAWait) {
  Table table;
  std::thread reporter([&] {
    std::this_thread::sleep_for(20ms);
    memberships[1]->report({Failure::Kind::kFailed, 1, "rank 1 threw"});
  });
  const TimePoint start = now();
  EXPECT_EQ(table.signal.wait(
                watch(), [] { return false; }, "nothing"),
            WaitResult::kFailed);
  EXPECT_LT(now() - start, 2s);
  reporter.join();
}

TEST_P(Signals, WhatIsReadyCountsMoreThanFailureAndDeadline) {
  Table table;
  memberships[1]->report({Failure::Kind::kFailed, 1, "rank 1 threw"});
  EXPECT_EQ(table.signal.wait(
                watch(0ms), [] { return true; }, "nothing"),
            WaitResult::kReady);
  EXPECT_EQ(table.signal.wait(
                watch(0ms), [] { return false; }, "nothing"),
            WaitResult::kFailed);
}

TEST_P(Signals, ASleeperThatIsKilledLeavesNothingBehind) {
  Segment memory(4096);
  Table& table = *reinterpret_cast<Table*>(memory.data());
  ForkedProcess sleeper([&] {
    table.signal.wait(
        watch(), [] { return false; }, "nothing");
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(WTERMSIG(sleeper.kill()), SIGKILL);
  on_threads(2, [&](int player) { play(table, player, 100, watch()); });
  EXPECT_EQ(table.turn, 100);
}

TEST(Futex, WaitersSleepSoonWhenThereAreMoreRanksThanCores) {
  Futex::set_ranks_on_host(100'000);
  EXPECT_LT(Futex::spin_limit(), 20);
  Futex::set_ranks_on_host(1);
  EXPECT_GT(Futex::spin_limit(), 500);
}

}  // namespace
}  // namespace gradus::dist::internal
