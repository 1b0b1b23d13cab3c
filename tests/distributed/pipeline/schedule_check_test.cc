// check_schedule: what it refuses, and what it says; and lists at random, whose number is their seed.
#include "gradus/distributed/pipeline/schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <regex>

#include "gradus/tests/distributed/pipeline/action_lists.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ActionKind F = ActionKind::kForward, B = ActionKind::kBackward, I = ActionKind::kInputGradient,
                     W = ActionKind::kWeightGradient;

std::string check(const ActionLists& lists) {
  return error_of<ScheduleError>([&] { check_schedule(lists); });
}
std::string check(const std::vector<std::string>& text_of_rank) { return check(lists_of(text_of_rank)); }

TEST(ScheduleCheck, TheCircleIsPrinted) {
  // Rank 0 wants its gradient before it gives rank 1 what that needs.
  const ActionLists lists = lists_of({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"});
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
  EXPECT_THAT(check({"0B0 0F0"}), HasSubstr("0B0 waits for 0F0, which comes after 0B0 on rank 0"));
}

TEST(ScheduleCheck, WhatIsMissingOrTwiceIsNamed) {
  EXPECT_EQ(check({"0F0 0F1", "1F1 1F0"}), "no error");  // an evaluation
  EXPECT_THAT(check({"0F0 0B0", "1B0"}), HasSubstr("no rank has 1F0"));
  EXPECT_THAT(check({"0F0 0B0", "1F0"}), HasSubstr("no rank has 1B0"));
  EXPECT_THAT(check({"0F0 0I0"}), HasSubstr("no rank has 0W0"));
  EXPECT_THAT(check({"0F0 0W0"}), HasSubstr("no rank has 0B0"));
  EXPECT_THAT(check({"0F0 0B0 0W0"}), HasSubstr("0W0 or a part of it twice"));
  EXPECT_THAT(check({"0F0 0I0 0B0 0W0"}), HasSubstr("0B0 or a part of it twice"));
  EXPECT_THAT(check({"0F0 0F0 0B0"}), HasSubstr("0F0 or a part of it twice"));
  EXPECT_THAT(check({"0F0 0B0", "0F1 0B1"}), HasSubstr("rank 1 has 0F1, but stage 0 is on rank 0"));
  EXPECT_THAT(check(ActionLists{}), HasSubstr("got none"));
  ActionLists odd = lists_of({"0F0 0B0"});
  odd.of_rank[0].push_back({F, 3, 0});
  EXPECT_THAT(check(odd), HasSubstr("rank 0 has 3F0, but there are 1 stages"));
}

// A short list may have large numbers: what it lacks is seen before there is memory for all of them.
TEST(ScheduleCheck, ShortListsOfLargeNumbersTakeNoMemory) {
  constexpr int kActions = 8192;
  ActionLists lists{.of_rank = {{}}, .rank_of_stage = std::vector<int>(kActions), .micro_batches = kActions};
  for (int i = 0; i < kActions; ++i) lists.of_rank[0].push_back({F, i, i});
  EXPECT_THAT(
      check(lists),
      HasSubstr("8192 stages and 8192 micro-batches have 67108864 forwards, and there are 8192 actions"));
}

// ---- lists at random ----

constexpr int kLists = 1000, kMaxRanks = 4, kMaxStages = 3;

struct RandomLists {
  ActionLists lists;
  std::map<std::pair<int, int>, bool> split;  // by stage and micro-batch: I and W instead of B

  // Returns what an action needs directly, by the rules alone.
  std::vector<Action> needs(const Action& a) const {
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
      if (a.stage + 1 < lists.stages()) all.push_back(gradient(a.stage + 1));
    }
    return all;
  }
  // Whether the rank of both runs `b` before `a`.
  bool in_order(const Action& b, const Action& a) const {
    const auto& list = lists.of_rank[size_t(lists.rank_of_stage[size_t(a.stage)])];
    const auto first = std::ranges::find(list, b), second = std::ranges::find(list, a);
    return second != list.end() && first < second;
  }
};

// Deals one to three stages to each rank. Runs actions in a random order in which each finds what it needs.
RandomLists random_lists(std::mt19937& random, int ranks) {
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  RandomLists r;
  r.lists.micro_batches = 1 + below(6);
  r.lists.of_rank.resize(size_t(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    r.lists.rank_of_stage.insert(r.lists.rank_of_stage.end(), size_t(1 + below(kMaxStages)), rank);
  std::ranges::shuffle(r.lists.rank_of_stage, random);
  std::vector<Action> left;
  for (int s = 0; s < r.lists.stages(); ++s)
    for (int k = 0; k < r.lists.micro_batches; ++k) {
      const bool split = r.split[{s, k}] = below(2);
      left.push_back({F, s, k});
      left.push_back({split ? I : B, s, k});
      if (split) left.push_back({W, s, k});
    }
  while (!left.empty()) {
    const size_t i = random() % left.size();
    const auto is_done = [&](const Action& a) { return std::ranges::find(left, a) == left.end(); };
    if (!std::ranges::all_of(r.needs(left[i]), is_done)) continue;
    r.lists.of_rank[size_t(r.lists.rank_of_stage[size_t(left[i].stage)])].push_back(left[i]);
    left.erase(left.begin() + std::ptrdiff_t(i));
  }
  return r;
}

struct Broken {
  RandomLists random;
  const char* says;  // the error
  bool is_circle = false;
};

Broken broken_lists(std::mt19937& random, int ranks, int how) {
  const auto below = [&](size_t n) { return size_t(random() % uint32_t(n)); };
  Broken broken{random_lists(random, ranks), ""};
  ActionLists& lists = broken.random.lists;
  const size_t rank = below(lists.of_rank.size());
  std::vector<Action>& list = lists.of_rank[rank];
  const Action a = list[below(list.size())];
  switch (how) {
    case 0: {
      broken.says = "no rank has ";
      const bool is_one = lists.stages() * lists.micro_batches == 1;  // forwards alone are whole
      std::erase(list, is_one ? Action{F, 0, 0} : a);
      break;
    }
    case 1:
      broken.says = "or a part of it twice";
      list.insert(list.begin() + std::ptrdiff_t(below(list.size() + 1)), a);
      break;
    case 2: {  // an input's gradient without those of the parameters
      broken.says = "no rank has ";
      std::erase(list, Action{W, a.stage, a.micro_batch});
      std::ranges::replace(list, Action{B, a.stage, a.micro_batch}, Action{I, a.stage, a.micro_batch});
      break;
    }
    case 3:
      if (ranks > 1) {
        broken.says = ", but stage ";
        auto& other = lists.of_rank[(rank + 1 + below(size_t(ranks - 1))) % size_t(ranks)];
        std::erase(list, a);
        other.insert(other.begin() + std::ptrdiff_t(below(other.size() + 1)), a);
        break;
      }
      [[fallthrough]];
    default:
      // Exchanges actions of a rank until some wait for each other: most often at once.
      broken.says = "actions wait for each other in a circle: ";
      broken.is_circle = true;
      for (bool can_run = true; can_run;) {
        auto& changed = lists.of_rank[below(lists.of_rank.size())];
        std::swap(changed[below(changed.size())], changed[below(changed.size())]);
        try {
          check_schedule(lists);
        } catch (const ScheduleError&) {
          can_run = false;
        }
      }
  }
  return broken;
}

// Whether each action of the circle waits for the next: by a rule, or because it comes later on its rank.
bool is_circle(const std::vector<Action>& cycle, const RandomLists& r) {
  if (cycle.size() < 2) return false;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const Action &a = cycle[i], &b = cycle[(i + 1) % cycle.size()];
    if (!std::ranges::count(r.needs(a), b) && !r.in_order(b, a)) return false;
  }
  return true;
}

Action parse(const std::string& text) {
  int stage = -1, micro_batch = -1;
  char kind = 0;
  std::sscanf(text.c_str(), "%d%c%d", &stage, &kind, &micro_batch);
  return {kind == 'F' ? F : kind == 'B' ? B : kind == 'I' ? I : W, stage, micro_batch};
}

// Whether a text that was printed is a circle: "1F1 waits for 0F1, which comes after 0B0 on rank 0; 0B0 ...".
// Returns the ranks of what others wait for.
std::vector<int> printed_circle(const std::string& text, const RandomLists& r) {
  static const std::regex step(
      "(\\w+) waits for (\\w+)(?:, which comes after (\\w+) on rank (\\d+))?(?:; |$)");
  const std::string circle = text.substr(text.find("circle: ") + 8);
  std::vector<int> ranks;
  std::string read, last;
  for (std::sregex_iterator it(circle.begin(), circle.end(), step), end; it != end; ++it) {
    const std::smatch& m = *it;
    const Action waits = parse(m.str(1)), needed = parse(m.str(2));
    read += m.str(0);
    if (!last.empty() && m.str(1) != last) return {};  // each step begins where the one before it has ended
    last = m.str(m[3].matched ? 3 : 2);
    ranks.push_back(r.lists.rank_of_stage[size_t(needed.stage)]);
    if (!std::ranges::count(r.needs(waits), needed)) return {};
    if (m[3].matched && (!r.in_order(parse(last), needed) || m.str(4) != std::to_string(ranks.back())))
      return {};
  }
  const bool closes = circle.starts_with(last + " waits for ");
  return read == circle && closes ? ranks : std::vector<int>();
}

TEST(RandomLists, AThousandCanRun) {
  for (int seed = 0; seed < kLists; ++seed) {
    std::mt19937 random{uint32_t(seed)};
    const ActionLists lists = random_lists(random, 1 + seed % kMaxRanks).lists;
    EXPECT_NO_THROW(check_schedule(lists)) << testing::PrintToString(to_text(lists));
    EXPECT_NO_THROW(check_schedule(forwards_of(lists)));
  }
}

TEST(RandomLists, AThousandBrokenOnesAreRefused) {
  int circles = 0, over_ranks = 0;
  for (int seed = 0; seed < kLists; ++seed) {
    std::mt19937 random{uint32_t(seed)};
    const Broken broken = broken_lists(random, 1 + seed % kMaxRanks, seed / kMaxRanks % 5);
    SCOPED_TRACE(concat("list ", seed, ": ", testing::PrintToString(to_text(broken.random.lists))));
    try {
      check_schedule(broken.random.lists);
      ADD_FAILURE() << "not refused";
    } catch (const ScheduleError& e) {
      EXPECT_THAT(e.what(), HasSubstr(broken.says));
      EXPECT_EQ(e.cycle.empty(), !broken.is_circle);
      if (!broken.is_circle) continue;
      EXPECT_TRUE(is_circle(e.cycle, broken.random)) << e.what();
      const std::vector<int> ranks = printed_circle(e.what(), broken.random);
      ASSERT_FALSE(ranks.empty()) << e.what();
      ++circles;
      over_ranks += std::ranges::any_of(ranks, [&](int rank) { return rank != ranks[0]; });
    }
  }
  EXPECT_GT(circles, 200);
  EXPECT_GT(over_ranks, 50);
}

}  // namespace
}  // namespace gradus::dist
