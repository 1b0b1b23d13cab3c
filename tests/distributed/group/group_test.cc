// Groups of ranks: split, duplicate, new_group and subgroups, their members and ranks, and calls in several
// groups at once. Ranks are threads.
#include "gradus/distributed/group/group.h"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;

double sum_over(const Group& group, double value) {
  const Tensor x = scalar(value);
  all_reduce(x, {.group = group});
  return x.item<double>();
}

TEST(Group, WithoutAJobIsOfOne) {
  EXPECT_FALSE(is_initialized());
  const Group group;
  EXPECT_TRUE(group.is_member());
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.backend(), "none");
  EXPECT_THAT(group.ranks(), ElementsAre(0));
  EXPECT_EQ(sum_over(group, 3), 3);
  EXPECT_EQ(sum_over(group.split(5), 3), 3);
  EXPECT_EQ(sum_over(group.duplicate(), 3), 3);
  EXPECT_EQ(sum_over(new_group({0}), 3), 3);
  EXPECT_EQ(get_rank(), 0);
  EXPECT_EQ(get_world_size(), 1);
  EXPECT_EQ(get_local_rank(), 0);
  EXPECT_EQ(get_local_world_size(), 1);
  EXPECT_EQ(get_node_rank(), 0);
  EXPECT_EQ(sum_over(get_local_group(), 3), 3);
  destroy_process_group();  // no-op
}

TEST(Group, OfTheJobKnowsItsRanks) {
  run_ranks(3, [] {
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(world().size(), 3);
    EXPECT_EQ(world().rank(), get_rank());
    EXPECT_EQ(get_world_size(), 3);
    EXPECT_EQ(get_local_rank(), get_rank());
    EXPECT_EQ(world().name(), "world");
    EXPECT_EQ(get_backend(), "local");
    EXPECT_THAT(world().ranks(), ElementsAre(0, 1, 2));
    EXPECT_FALSE(world().is_default());
    EXPECT_TRUE(Group().is_default());
  });
  EXPECT_FALSE(is_initialized());
}

TEST(Group, WorldIsThatOfTheRankThatUsesIt) {
  EXPECT_EQ(WORLD.size(), 1);
  run_ranks(3, [] {
    EXPECT_EQ(get_rank(WORLD), get_rank());
    EXPECT_EQ(sum_over(WORLD, 1), 3);
  });
}

TEST(Group, OfAHostHasItsRanks) {
  run_ranks(5,
            [] {
              const int rank = get_rank();  // hosts: {0, 1, 2} and {3, 4}
              EXPECT_EQ(get_node_rank(), rank / 3);
              const Group local = get_local_group();
              EXPECT_THAT(local.ranks(), rank < 3 ? std::vector({0, 1, 2}) : std::vector({3, 4}));
              EXPECT_EQ(local.rank(), get_local_rank());
              EXPECT_EQ(sum_over(local, 1), rank < 3 ? 3 : 2);
            },
            {.hosts = 2});
}

TEST(Group, SplitsByColorAndKey) {
  run_ranks(5, [] {
    const int rank = get_rank();
    const Group parity = Group().split(rank % 2);
    EXPECT_THAT(parity.ranks(), rank % 2 ? std::vector<int>({1, 3}) : std::vector<int>({0, 2, 4}));
    EXPECT_EQ(sum_over(parity, rank), rank % 2 ? 4 : 6);
    const Group backwards = Group().split(0, -rank);
    EXPECT_THAT(backwards.ranks(), ElementsAre(4, 3, 2, 1, 0));
    EXPECT_EQ(backwards.rank(), 4 - rank);
    const Group some = Group().split(rank < 2 ? 7 : -1);
    EXPECT_EQ(some.is_member(), rank < 2);
    if (rank < 2) {
      EXPECT_EQ(sum_over(some, 1), 2);
    }
    const Group half = backwards.split(rank / 3);  // of a group that is no default
    EXPECT_THAT(half.ranks(), rank < 3 ? std::vector<int>({2, 1, 0}) : std::vector<int>({4, 3}));
  });
}

TEST(Group, OfOneRankNeedsNobody) {
  run_ranks(3, [] {
    const Group alone = Group().split(get_rank());
    EXPECT_EQ(alone.size(), 1);
    EXPECT_EQ(alone.backend(), "none");
    EXPECT_EQ(sum_over(alone, 5), 5);
    EXPECT_EQ(all_gather(scalar(2), {.group = alone}).size(), 1u);
  });
}

TEST(Group, DuplicateIsIndependent) {
  run_ranks(3, [] {
    const Group copy = Group().duplicate();
    EXPECT_THAT(copy.ranks(), ElementsAre(0, 1, 2));
    // In another order on every rank: each group has an order of its own.
    const Tensor a = scalar(1), b = scalar(10);
    const auto in_world = [&] { return all_reduce(a, {.async_op = true}); };
    const auto in_copy = [&] { return all_reduce(b, {.group = copy, .async_op = true}); };
    std::vector<Work> works =
        get_rank() % 2 ? std::vector{in_world(), in_copy()} : std::vector{in_copy(), in_world()};
    for (const Work& work : works) work.wait();
    EXPECT_EQ(a.item<double>(), 3);
    EXPECT_EQ(b.item<double>(), 30);
  });
}

TEST(NewGroup, HasMembersAndOthers) {
  run_ranks(4, [] {
    const Group group = new_group({3, 1}, {.timeout = Milliseconds(1234), .name = "pair"});
    const bool member = get_rank() % 2;
    EXPECT_EQ(group.is_member(), member);
    EXPECT_THAT(group.ranks(), ElementsAre(3, 1));
    EXPECT_EQ(group.name(), "pair");
    EXPECT_EQ(get_rank(group), member ? (get_rank() == 3 ? 0 : 1) : -1);
    EXPECT_EQ(get_world_size(group), member ? 2 : -1);
    EXPECT_EQ(get_group_rank(group, 1), 1);
    EXPECT_EQ(get_global_rank(group, 0), 3);
    EXPECT_THROW(get_group_rank(group, 0), ValueError);
    EXPECT_THROW(get_global_rank(group, 2), ValueError);
    if (member) {
      EXPECT_EQ(group.timeout(), Milliseconds(1234));
      EXPECT_EQ(sum_over(group, get_rank()), 4);
    } else {
      EXPECT_THROW(sum_over(group, 1), ValueError);
    }
    barrier();  // nobody's error has touched the job
  });
}

TEST(NewGroup, GivesGroupsThatOverlap) {
  run_ranks(4, [] {
    const Group first = new_group({0, 1, 2}), second = new_group({1, 2, 3}), again = new_group({0, 1, 2});
    for (int round = 0; round < 20; ++round) {
      std::vector<std::pair<Tensor, Work>> calls;
      for (const Group& group : {first, second, again})
        if (group.is_member()) {
          const Tensor x = scalar(get_rank() + round);
          calls.emplace_back(x, all_reduce(x, {.group = group, .async_op = true}));
        }
      for (const auto& [x, work] : calls) work.wait();
      if (first.is_member()) {
        EXPECT_EQ(calls.front().first.item<double>(), 3 + 3 * round);
      }
      if (second.is_member()) {
        EXPECT_EQ(calls[get_rank() == 3 ? 0 : 1].first.item<double>(), 6 + 3 * round);
      }
    }
  });
}

// Whether its GPUs use it is tested with emulated GPUs.
TEST(NewGroup, TakesABackend) {
  run_ranks(2, [] {
    for (const char* backend : {"gloo", "nccl", "cpu:gloo,cuda:nccl"})
      EXPECT_EQ(sum_over(new_group({0, 1}, {.backend = backend}), 1), 2);
    EXPECT_EQ(sum_over(new_subgroups(2, {.name = "both", .backend = "gloo"}), 1), 2);
    EXPECT_THROW(new_group({0, 1}, {.backend = "smoke"}), ValueError);
    EXPECT_THROW(override_backend("smoke"), ValueError);
    EXPECT_THROW(new_subgroups(2, {.backend = "smoke"}), ValueError);
  });
}

TEST(NewGroup, TakesTheOverriddenBackend) {
  run_ranks(2, [] {
    const auto uses_library = [](const Group& group) { return group.state().uses_device_library(); };
    EXPECT_TRUE(uses_library(new_group({0, 1})));
    {
      auto scope = override_backend("gloo");
      EXPECT_FALSE(uses_library(new_group({0, 1})));
      EXPECT_FALSE(uses_library(world().duplicate()));
      EXPECT_TRUE(uses_library(new_group({0, 1}, {.backend = "nccl"})));
      {
        auto inner = override_backend("nccl");
        EXPECT_TRUE(uses_library(new_group({0, 1})));
      }
      EXPECT_FALSE(uses_library(new_group({0, 1}).split(0)));
    }
    EXPECT_TRUE(uses_library(new_group({0, 1})));
    const Group by_host = new_group({0, 1}, {.backend = "gloo"});
    EXPECT_FALSE(uses_library(by_host.duplicate()));
  });
}

TEST(NewGroup, RefusesWhatIsNoGroup) {
  run_ranks(3, [] {
    EXPECT_THROW(new_group({0, 3}), ValueError);
    EXPECT_THROW(new_group({-1}), ValueError);
    EXPECT_THROW(new_group({1, 1}), ValueError);
    EXPECT_THROW(new_group({}), ValueError);
    EXPECT_THROW(new_subgroups(2), ValueError);
    EXPECT_THROW(new_subgroups(0), ValueError);
    EXPECT_THROW(new_subgroups_by_enumeration({{0, 1}, {1, 2}}), ValueError);
  });
}

TEST(NewSubgroups, CutTheJob) {
  run_ranks(6, [] {
    const int rank = get_rank();
    EXPECT_THAT(new_subgroups(2).ranks(), ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
    const Group group = new_subgroups_by_enumeration({{5, 0}, {1, 2, 3}});
    EXPECT_EQ(group.is_member(), rank != 4);
    if (rank == 0) {
      EXPECT_THAT(group.ranks(), ElementsAre(5, 0));
    }
    if (rank != 4) {
      EXPECT_EQ(sum_over(group, 1), rank % 5 == 0 ? 2 : 3);
    }
  });
}

TEST(Group, OutlivesItsJobAsAHandle) {
  Group kept;
  run_ranks(2, [&] {
    const Group copy = Group().duplicate();
    if (get_rank() == 0) kept = copy;
    barrier();
  });
  EXPECT_EQ(kept.size(), 2);
  EXPECT_THROW(sum_over(kept, 1), Error);  // the other one has left
}

TEST(Group, CallsFromSeveralThreadsTakeTurns) {
  run_ranks(2, [] {
    const Group copies[] = {Group().duplicate(), Group().duplicate()};
    std::vector<std::thread> threads;
    for (const Group& group : copies)
      threads.emplace_back([&group] {
        for (int i = 0; i < 100; ++i) EXPECT_EQ(sum_over(group, i), 2 * i);
      });
    for (std::thread& thread : threads) thread.join();
  });
}

// Threads make groups at the same time, in an order that differs from rank to rank.
TEST(Group, SeveralThreadsMakeGroups) {
  constexpr int kThreads = 3, kGroups = 100;
  run_ranks(3,
            [] {
              const Group parents[kThreads] = {Group().duplicate(), Group().duplicate(),
                                               Group().split(get_rank() > 0)};
              std::vector<Group> made[kThreads];
              std::vector<std::thread> threads;
              for (int t = 0; t < kThreads; ++t)
                threads.emplace_back([&, t] {
                  for (int i = 0; i < kGroups; ++i) {
                    const Group& group = made[t].emplace_back(parents[t].duplicate());
                    EXPECT_EQ(sum_over(group, i), group.size() * i);
                  }
                });
              for (std::thread& thread : threads) thread.join();
              std::set<uint32_t> ids;
              std::set<std::string> names;
              for (const auto& groups : made)
                for (const Group& group : groups) {
                  ids.insert(group.state().id());
                  names.insert(group.name());
                }
              EXPECT_EQ(ids.size(), kThreads * kGroups);
              EXPECT_EQ(names.size(), kThreads * kGroups);
            },
            {.timeout = Milliseconds(20'000)});
}

}  // namespace
}  // namespace gradus::dist
