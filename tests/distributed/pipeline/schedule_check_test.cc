// check_schedule: a thousand random lists that can run, and a thousand that cannot.
#include "gradus/distributed/pipeline/schedule_check.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

namespace gradus::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const ActionLists& lists) {
  try {
    check_schedule(lists);
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}
std::string error_of(const std::vector<std::string>& text) { return error_of(parse_schedule(text)); }

constexpr ActionKind F = ActionKind::kForward, B = ActionKind::kBackward, I = ActionKind::kInputGradient,
                     W = ActionKind::kWeightGradient;

// What an action needs directly, by the rules alone.
std::vector<Action> needs(const Action& a, int stages, const std::map<std::pair<int, int>, bool>& split) {
  const auto gradient = [&](int stage) {
    return Action{split.at({stage, a.micro_batch}) ? I : B, stage, a.micro_batch};
  };
  std::vector<Action> all;
  if (a.kind == F) {
    if (a.stage > 0) all.push_back({F, a.stage - 1, a.micro_batch});
  } else if (a.kind == W) {
    all.push_back({I, a.stage, a.micro_batch});
  } else {
    all.push_back({F, a.stage, a.micro_batch});
    if (a.stage + 1 < stages) all.push_back(gradient(a.stage + 1));
  }
  return all;
}

struct Random {
  ActionLists lists;
  std::map<std::pair<int, int>, bool> split;
};

// Deals stages to ranks, and runs actions in a random order in which each finds what it needs.
Random random_lists(std::mt19937& rng) {
  const auto below = [&](int n) { return int(rng() % uint32_t(n)); };
  const int ranks = 1 + below(5), stages = ranks + below(5), micro_batches = 1 + below(6);
  Random r;
  r.lists.micro_batches = micro_batches;
  r.lists.of_rank.resize(ranks);
  for (int s = 0; s < stages; ++s) r.lists.rank_of_stage.push_back(s < ranks ? s : below(ranks));
  std::ranges::shuffle(r.lists.rank_of_stage, rng);
  std::vector<Action> left;
  for (int s = 0; s < stages; ++s)
    for (int k = 0; k < micro_batches; ++k) {
      const bool split = r.split[{s, k}] = below(2);
      left.push_back({F, s, k});
      left.push_back({split ? I : B, s, k});
      if (split) left.push_back({W, s, k});
    }
  std::vector<Action> done;
  while (!left.empty()) {
    const size_t i = rng() % left.size();
    const auto needed = needs(left[i], stages, r.split);
    if (!std::ranges::all_of(needed, [&](const Action& n) { return std::ranges::count(done, n); })) continue;
    done.push_back(left[i]);
    r.lists.of_rank[r.lists.rank_of_stage[left[i].stage]].push_back(left[i]);
    left.erase(left.begin() + std::ptrdiff_t(i));
  }
  return r;
}

// Whether each action of the circle waits for the next: by a rule, or because it comes later on its rank.
bool is_circle(const std::vector<Action>& cycle, const Random& r) {
  if (cycle.size() < 2) return false;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const Action &a = cycle[i], &b = cycle[(i + 1) % cycle.size()];
    const auto needed = needs(a, r.lists.stages(), r.split);
    const auto& list = r.lists.of_rank[r.lists.rank_of_stage[a.stage]];
    const auto at = std::ranges::find(list, a), other = std::ranges::find(list, b);
    if (!std::ranges::count(needed, b) && !(other != list.end() && other < at)) return false;
  }
  return true;
}

TEST(ScheduleCheck, AThousandRandomListsCanRun) {
  std::mt19937 rng(1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(error_of(random_lists(rng).lists), "no error");
}

TEST(ScheduleCheck, AThousandBrokenListsAreRefused) {
  std::mt19937 rng(2);
  int circles = 0;
  for (int i = 0; i < 1000; ++i) {
    Random r = random_lists(rng);
    // Puts an action before one that it waits for: a random order of one rank's list most often does.
    while (true) {
      auto& list = r.lists.of_rank[rng() % r.lists.of_rank.size()];
      std::swap(list[rng() % list.size()], list[rng() % list.size()]);
      try {
        check_schedule(r.lists);
      } catch (const ScheduleError& e) {
        ASSERT_TRUE(is_circle(e.cycle, r)) << e.what();
        EXPECT_THAT(e.what(), HasSubstr(to_string(e.cycle[0]) + " waits for "));
        ++circles;
        break;
      }
    }
    auto& list = r.lists.of_rank[rng() % r.lists.of_rank.size()];
    const Action a = list[rng() % list.size()];
    if (i % 2) {
      list.push_back(a);
      EXPECT_THAT(error_of(r.lists), HasSubstr("twice"));
    } else {
      std::erase(list, a);
      const bool evaluation = r.split.size() == 1 && list.size() == 1 && list[0].kind == F;
      EXPECT_THAT(error_of(r.lists), HasSubstr(evaluation ? "no error" : "no rank has"));
    }
  }
  EXPECT_EQ(circles, 1000);
}

TEST(ScheduleCheck, TheCircleIsPrinted) {
  // Rank 0 wants its gradient before it gives rank 1 what that needs.
  const ActionLists lists = parse_schedule({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"});
  try {
    check_schedule(lists);
    FAIL();
  } catch (const ScheduleError& e) {
    EXPECT_STREQ(
        e.what(),
        "[check_schedule] actions wait for each other in a circle: 0B0 waits for 1B0, which comes after "
        "1F1 on rank 1; 1F1 waits for 0F1, which comes after 0B0 on rank 0");
    EXPECT_THAT(e.cycle, ElementsAre(Action{B, 0, 0}, Action{B, 1, 0}, Action{F, 1, 1}, Action{F, 0, 1}));
  }
  EXPECT_THAT(error_of({"0B0 0F0"}), HasSubstr("0B0 waits for 0F0, which comes after 0B0 on rank 0"));
}

TEST(ScheduleCheck, WhatIsMissingOrTwiceIsNamed) {
  EXPECT_EQ(error_of({"0F0 0F1", "1F1 1F0"}), "no error");  // an evaluation
  EXPECT_THAT(error_of({"0F0 0B0", "1B0"}), HasSubstr("no rank has 1F0"));
  EXPECT_THAT(error_of({"0F0 0B0", "1F0"}), HasSubstr("no rank has 1B0"));
  EXPECT_THAT(error_of({"0F0 0I0"}), HasSubstr("no rank has 0W0"));
  EXPECT_THAT(error_of({"0F0 0W0"}), HasSubstr("no rank has 0B0"));
  EXPECT_THAT(error_of({"0F0 0B0 0W0"}), HasSubstr("0W0 or a part of it twice"));
  EXPECT_THAT(error_of({"0F0 0I0 0B0 0W0"}), HasSubstr("0B0 or a part of it twice"));
  EXPECT_THAT(error_of({"0F0 0F0 0B0"}), HasSubstr("0F0 or a part of it twice"));
  EXPECT_THAT(error_of({"0F0 0B0", "0F1 0B1"}), HasSubstr("rank 1 has 0F1, but stage 0 is on rank 0"));
  EXPECT_THAT(error_of(ActionLists{}), HasSubstr("given none"));
  ActionLists odd = parse_schedule({"0F0 0B0"});
  odd.of_rank[0].push_back({F, 3, 0});
  EXPECT_THAT(error_of(odd), HasSubstr("rank 0 has 3F0, but there are 1 stages"));
}

}  // namespace
}  // namespace gradus::dist
