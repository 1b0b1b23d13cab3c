// Schedules: the lists of actions that papers and libraries give, names, and what check_schedule refuses.
// "1F0" is stage 1, forward, micro-batch 0; B is a backward, I and W its input and weight gradient.
#include "gradus/distributed/pipeline/schedule.h"

#include <gmock/gmock.h>

#include "gradus/tests/distributed/pipeline/action_lists.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Lists {
  Schedule schedule;
  int ranks, micro_batches;
  std::vector<std::string> text;  // where a rank has one stage, without the stage's number
};

const Lists kLists[] = {
    {Schedule::k1F1B, 2, 4, {"F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}},
    {Schedule::k1F1B,
     4,
     4,
     {"F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3",
      "F0 B0 F1 B1 F2 B2 F3 B3"}},
    {Schedule::k1F1B,
     4,
     8,
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
      "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {Schedule::kInterleaved1F1B,
     2,
     4,
     {"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
      "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"}},
    {Schedule::kInterleaved1F1B,
     4,
     4,
     {"0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 4B0 4B1 4B2 4B3 0B0 0B1 0B2 0B3",
      "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 5B0 5B1 5B2 5B3 1B0 1B1 1B2 1B3",
      "2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 6B2 6B3 2B0 2B1 2B2 2B3",
      "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3B0 3B1 3B2 3B3"}},
    {Schedule::kInterleaved1F1B,
     4,
     8,
     {"0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 "
      "0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7",
      "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 1F4 5B0 1F5 5B1 1F6 5B2 1F7 5B3 5F4 1B0 5F5 1B1 5F6 1B2 "
      "5F7 1B3 5B4 5B5 5B6 5B7 1B4 1B5 1B6 1B7",
      "2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 2F4 6B2 2F5 6B3 2F6 2B0 2F7 2B1 6F4 2B2 6F5 2B3 "
      "6F6 6B4 6F7 6B5 6B6 6B7 2B4 2B5 2B6 2B7",
      "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 "
      "7F5 7B5 7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7"}},
    {Schedule::kZeroBubbleH1,
     2,
     4,
     {"F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3", "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3"}},
    {Schedule::kZeroBubbleH1,
     4,
     8,
     {"F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7",
      "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7",
      "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7",
      "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7"}},
    {Schedule::kZeroBubbleH1,
     4,
     4,
     {"F0 F1 F2 F3 I0 W0 I1 W1 I2 W2 I3 W3", "F0 F1 F2 I0 F3 I1 W0 I2 W1 I3 W2 W3",
      "F0 F1 I0 F2 I1 F3 I2 W0 I3 W1 W2 W3", "F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3"}},
    {Schedule::kZeroBubbleV,
     2,
     4,
     {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 "
      "0I3 0W3",
      "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 "
      "2W3 1W3"}},
};

bool interleaves(Schedule s) { return s == Schedule::kInterleaved1F1B || s == Schedule::kZeroBubbleV; }

TEST(Schedule, GivesTheListsLiterally) {
  for (const Lists& want : kLists) {
    const bool two = interleaves(want.schedule);
    const ActionLists got = make_schedule(
        want.schedule,
        {.ranks = want.ranks, .stages_per_rank = two ? 2 : 1, .micro_batches = want.micro_batches});
    for (int rank = 0; rank < want.ranks; ++rank) {
      std::string text = want.text[rank];
      if (!two)
        for (size_t i = 0; i != std::string::npos; i = text.find(' ', i + 3))
          text.insert(i ? i + 1 : 0, std::to_string(rank));
      EXPECT_EQ(to_text(got)[rank], text)
          << name_of(want.schedule) << " P " << want.ranks << " M " << want.micro_batches << " rank " << rank;
    }
  }
}

TEST(Schedule, GPipeRunsAllForwardsFirst) {
  const auto text = [](Schedule s) { return to_text(make_schedule(s, {.ranks = 2, .micro_batches = 3})); };
  EXPECT_THAT(text(Schedule::kGPipe), ElementsAre("0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"));
  EXPECT_THAT(text(Schedule::kGPipeLIFO), ElementsAre("0F0 0F1 0F2 0B2 0B1 0B0", "1F0 1F1 1F2 1B2 1B1 1B0"));
}

TEST(Schedule, StagesThatFollowEachOtherOnARankRunAsOne) {
  EXPECT_THAT(to_text(make_schedule(Schedule::k1F1B, {.ranks = 2, .stages_per_rank = 2, .micro_batches = 2})),
              ElementsAre("0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1", "2F0 3F0 3B0 2B0 2F1 3F1 3B1 2B1"));
}

TEST(Schedule, EveryOneCanRun) {
  for (int s = 0; s <= int(Schedule::kZeroBubbleV); ++s)
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int depth = 1; depth <= 3; ++depth)
        for (int micro_batches = 1; micro_batches <= 17; ++micro_batches) {
          if (Schedule(s) == Schedule::kZeroBubbleV && depth != 2) continue;
          const ActionLists lists = make_schedule(
              Schedule(s), {.ranks = ranks, .stages_per_rank = depth, .micro_batches = micro_batches});
          ASSERT_NO_THROW(check_schedule(lists))
              << name_of(Schedule(s)) << " P " << ranks << " V " << depth << " M " << micro_batches;
          ASSERT_NO_THROW(check_schedule(forwards_of(lists)));
        }
}

TEST(Schedule, NamesAreReadBack) {
  for (int s = 0; s <= int(Schedule::kZeroBubbleV); ++s)
    EXPECT_EQ(parse_schedule_name(name_of(Schedule(s))), Schedule(s));
  EXPECT_ERROR(ValueError, parse_schedule_name("2f2b"), "gpipe, gpipe-lifo, 1f1b", "got '2f2b'");
}

TEST(Schedule, OptionsAreChecked) {
  const auto error = [](Schedule s, ScheduleOptions o) {
    return error_of<ValueError>([&] { make_schedule(s, o); });
  };
  EXPECT_THAT(error(Schedule::kGPipe, {.ranks = 0}), HasSubstr("at least one rank"));
  EXPECT_THAT(error(Schedule::kGPipe, {.micro_batches = -1}), HasSubstr("at least one rank"));
  EXPECT_THAT(error(Schedule::kGPipe, {.extra_warmup = 1}), HasSubstr("no extra warm-up"));
  EXPECT_THAT(error(Schedule::k1F1BSlowLinks, {.extra_warmup = -1}), HasSubstr("extra_warmup >= 0"));
  EXPECT_THAT(error(Schedule::kZeroBubbleV, {.ranks = 2}), HasSubstr("2 stages per rank, got 1"));
  EXPECT_THAT(
      error(Schedule::kGPipe, {.ranks = 1 << 30, .stages_per_rank = 1 << 30, .micro_batches = 1 << 30}),
      HasSubstr("too many actions"));
}

constexpr ActionKind F = ActionKind::kForward, B = ActionKind::kBackward;

std::string check(const ActionLists& lists) {
  return error_of<ScheduleError>([&] { check_schedule(lists); });
}
std::string check(const std::vector<std::string>& text_of_rank) { return check(lists_of(text_of_rank)); }

TEST(ScheduleCheck, TheCircleIsPrinted) {
  // Rank 0 waits for the gradient of 0 before it sends the activation of 1, which rank 1 waits for.
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

// Missing actions are noticed before memory for stages * micro-batches is allocated.
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
