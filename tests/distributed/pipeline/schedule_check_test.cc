// check_schedule: what it refuses, and what it says.
#include "gradus/distributed/pipeline/schedule_check.h"

#include <gmock/gmock.h>

#include "gradus/tests/distributed/pipeline/action_lists.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ActionKind F = ActionKind::kForward, B = ActionKind::kBackward;

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

}  // namespace
}  // namespace gradus::dist
