// simulate(): ranks under a scheduler that a seed drives, in simulated time. The same seed gives the same
// run, some seeds show races and deadlocks, and under killed ranks and lost messages random programs end with
// right values or the right error. tools/simulate.sh tries more seeds.
#include "gradus/distributed/simulation/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/health/futex.h"
#include "gradus/tests/distributed/simulation/random_pipeline.h"
#include "gradus/tests/distributed/simulation/random_program.h"

namespace gradus::dist {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// The text of what a rank threw, "" for nothing.
template <class E> std::string text_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error: " << e.what();
  }
  return "";
}

void sum_some() {
  const Tensor x = tensor({1.f, 2.f});
  for (int i = 0; i < 3; ++i) all_reduce(x);
}

TEST(Simulation, TheSameSeedIsTheSameRunAndAnotherOneIsNot) {
  std::set<uint64_t> runs;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SimulationReport once = simulate(3, {.seed = seed}, sum_some),
                           again = simulate(3, {.seed = seed}, sum_some);
    EXPECT_EQ(once.trace_hash, again.trace_hash);
    EXPECT_EQ(once.trace, again.trace);
    runs.insert(once.trace_hash);
  }
  EXPECT_EQ(runs.size(), 20u);
}

TEST(Simulation, EachRankHasItsPlaceAndWhatItThrowsIsTold) {
  const auto report = simulate(3, {}, [] {
    EXPECT_EQ(get_world_size(), 3);
    if (get_rank() == 1) throw ValueError("body", "no good");
    barrier();
  });
  EXPECT_EQ(text_of<PeerError>(report.errors[0]), "[barrier] rank 1 failed: ValueError: [body] no good");
  EXPECT_EQ(text_of<ValueError>(report.errors[1]), "[body] no good");
  EXPECT_EQ(text_of<PeerError>(report.errors[2]), "[barrier] rank 1 failed: ValueError: [body] no good");
}

// Two ranks that read, add one and write back lose one of the two additions when they are cut off in between.
TEST(Simulation, SomeSeedShowsALostUpdateAndSomeDoesNot) {
  std::set<std::string> ends;
  for (uint64_t seed = 0; seed < 40; ++seed)
    simulate(2, {.seed = seed}, [&] {
      Store& store = get_client().store();
      if (get_rank() == 0) store.set("n", "0");
      barrier();
      store.set("n", std::to_string(std::stoi(store.get("n")) + 1));
      barrier();
      if (get_rank() == 0) ends.insert(store.get("n"));
    });
  EXPECT_EQ(ends, (std::set<std::string>{"1", "2"}));
}

TEST(Simulation, ADeadlockIsFoundAndReplays) {
  const auto both_receive_first = [] {
    const Tensor x = tensor({1.f});
    const int other = 1 - get_rank();
    recv(x, {.timeout = std::chrono::hours(1)});  // from any rank, where no deadlock is detected
    send(x, {.dst = other});
  };
  const SimulationReport report = simulate(2, {.seed = 5}, both_receive_first);
  EXPECT_TRUE(report.hung);
  EXPECT_THAT(report.trace, Contains(HasSubstr("hung: rank 0, thread 0 waits for recv")));
  EXPECT_THAT(report.trace, Contains(HasSubstr("hung: rank 1, thread 1 waits for recv")));
  EXPECT_EQ(simulate(2, {.seed = 5}, both_receive_first).trace_hash, report.trace_hash);
}

// Two spin locks that two ranks take in different orders: a deadlock in some orders of events only.
TEST(Simulation, ALockOrderThatMayDeadlockIsFoundBySomeSeed) {
  int hung = 0, done = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::atomic<bool> taken[2] = {};
    internal::Futex freed;
    const auto report = simulate(2, {.seed = seed}, [&] {
      const auto member = make_local_memberships(1)[0];
      const auto lock = [&](int which) {
        internal::Simulation::current()->step("lock");
        const internal::WaitLimits watch{member.get(), Deadline::after(std::chrono::hours(1))};
        freed.wait(
            watch, [&] { return !taken[which]; }, "a lock");
        taken[which] = true;
      };
      lock(get_rank());
      lock(1 - get_rank());
      taken[0] = taken[1] = false;
    });
    report.hung ? ++hung : ++done;
  }
  EXPECT_GT(hung, 0);
  EXPECT_GT(done, 0);
}

TEST(Simulation, AThreadThatGoesInCirclesCountsAsHung) {
  const auto report = simulate(1, {.give_up = Milliseconds(100)}, [] {
    for (;;) internal::Simulation::current()->step("again");
  });
  EXPECT_TRUE(report.hung);
}

TEST(Simulation, ARankThatDoesNotComeIsATimeoutInNoTime) {
  const auto report = simulate(3, {.timeout = Milliseconds(7'000)}, [] {
    if (get_rank() == 1) get_client().store().get("never", std::chrono::minutes(5));
    barrier();
  });
  EXPECT_THAT(text_of<TimeoutError>(report.errors[0]),
              HasSubstr("rank 1 did not come to barrier #1 of group 'world' within 7000 ms"));
  EXPECT_THAT(text_of<TimeoutError>(report.errors[1]), HasSubstr("rank 1 did not come"));
  EXPECT_THAT(text_of<TimeoutError>(report.errors[2]), HasSubstr("rank 1 did not come"));
}

TEST(Simulation, AKilledRankIsNamedByAllOthers) {
  int killed = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto report = simulate(3, {.seed = seed, .kill = 1}, [] {
      for (int i = 0; i < 100; ++i) barrier();
    });
    if (report.killed < 0) continue;  // it was to be killed after its end
    ++killed;
    for (int rank = 0; rank < 3; ++rank)
      if (rank != report.killed && report.errors[rank]) {
        EXPECT_THAT(text_of<PeerError>(report.errors[rank]),
                    HasSubstr(concat("rank ", report.killed, " was killed by the simulation")));
      }
  }
  EXPECT_GT(killed, 15);
}

TEST(Simulation, ALostMessageIsATimeoutOnAllRanks) {
  int lost = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto report = simulate(3, {.seed = seed, .drop = 1, .messages_only = true}, [] {
      for (int i = 0; i < 30; ++i) barrier();
    });
    EXPECT_FALSE(report.hung);
    if (!report.dropped) continue;
    ++lost;
    for (const auto& error : report.errors)
      EXPECT_THAT(text_of<TimeoutError>(error), HasSubstr("within 10000 ms"));
  }
  EXPECT_EQ(lost, 20);
}

TEST(Simulation, RandomProgramsEndRightOrWithTheRightError) {
  int killed = 0, lost = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SimulationReport report;
    const std::string wrong = try_seed(seed, &report);
    EXPECT_EQ(wrong, "") << describe(report);
    killed += report.killed >= 0;
    lost += report.dropped;
    if (seed % 30 == 0) {
      SimulationReport again;
      try_seed(seed, &again);
      EXPECT_EQ(again.trace_hash, report.trace_hash) << "seed " << seed;
    }
  }
  // Enough goes wrong for the test to mean something.
  EXPECT_GT(killed, 10);
  EXPECT_GT(lost, 7);
}

// ---- pipelines ----

TEST(PipelineSimulation, StepsEndWithTheRightGradientsOrTheRightError) {
  int killed = 0, lost = 0, trained = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    const PipelineReport report = try_pipeline(seed);
    EXPECT_EQ(report.wrong, "") << describe(report.run);
    killed += report.run.killed >= 0;
    lost += report.run.dropped;
    trained += report.trained;
  }
  // Enough goes wrong, and enough goes right, for the test to mean something.
  EXPECT_GT(killed, 7);
  EXPECT_GT(lost, 3);
  EXPECT_GT(trained, 22);
}

}  // namespace
}  // namespace gradus::dist
