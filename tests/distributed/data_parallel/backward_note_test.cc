// What follows from the notes of all ranks.
#include "gradus/distributed/data_parallel/internal/backward_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/distributed/base/error.h"

namespace gradus::dist::internal {
namespace {

using testing::Each;
using testing::ElementsAre;

BackwardNote note(std::vector<bool> reached, BackwardNote::Kind kind = BackwardNote::kBackward,
                  int64_t flags = 0) {
  return {.kind = kind, .flags = flags, .reached = std::move(reached)};
}
BackwardNote joined(int64_t flags = 0) { return note({false, false, false}, BackwardNote::kJoined, flags); }

TEST(BackwardNote, ComesBackAsItWasWritten) {
  BackwardNote given = note(std::vector<bool>(130), BackwardNote::kJoined, BackwardNote::kEnclosingRecording);
  given.reached[0] = given.reached[64] = given.reached[129] = true;
  given.number = 7, given.plan = -8, given.attached = 9, given.checksum = -10;
  std::vector<int64_t> text = serialize(given);
  const std::optional<BackwardNote> back = parse(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(serialize(*back), text);
  EXPECT_EQ(back->reached, given.reached);
  text.pop_back();
  EXPECT_FALSE(parse(text)) << "too short";
  EXPECT_FALSE(parse({}));
}

TEST(Consensus, WhatSomeRankReachesIsUsed) {
  const Consensus all({note({true, false, false}), note({true, true, false})});
  EXPECT_THAT(all.used, ElementsAre(true, true, false));
  EXPECT_FALSE(all.canceled || all.diverged);
  EXPECT_EQ(all.divisor, 2);
  EXPECT_EQ(all.root(), 0);
}

TEST(Consensus, ARecordingWithoutABackwardCancelsAll) {
  BackwardNote compared = note({true, true, true});
  compared.checksum = 1;
  const Consensus all({compared, note({false, false, false}, BackwardNote::kNone)});
  EXPECT_TRUE(all.canceled);
  EXPECT_FALSE(all.diverged) << "a rank without a backward has compared nothing";
  EXPECT_THAT(all.used, Each(false));
}

TEST(Consensus, OtherChecksumsMeanThatParametersDiverged) {
  BackwardNote a = note({true, true, true}), b = a;
  a.checksum = 1, b.checksum = 3;
  EXPECT_TRUE(Consensus({a, b}).diverged);
  EXPECT_THAT(Consensus({a, b}).used, Each(false));
  EXPECT_FALSE(Consensus({a, b, joined()}).diverged) << "a rank that joined does not compare";
}

TEST(Consensus, RanksThatJoinedCountInAMeanUnlessTheyAskNotTo) {
  const auto divisor = [](int64_t flags) {
    return Consensus({joined(flags), note({true, true, true}, BackwardNote::kBackward, flags), joined(flags)})
        .divisor;
  };
  EXPECT_EQ(divisor(BackwardNote::kJoining), 3);
  EXPECT_EQ(divisor(BackwardNote::kJoining | BackwardNote::kDivideByActive), 1);
  EXPECT_EQ(Consensus({joined(), note({true, true, true})}).root(), 1) << "the first with data";
  EXPECT_EQ(Consensus({joined(), joined()}).active, -1);
  EXPECT_EQ(Consensus({joined(), joined()}).root(), 0);
}

TEST(Consensus, RanksWithDataCannotAlwaysGoOnWithoutThoseThatJoined) {
  const std::vector<int> ranks{4, 6};
  const auto check = [&](int64_t flags, const BackwardNote& second) {
    const BackwardNotes notes{note({true, true, true}, BackwardNote::kBackward, flags), second};
    const Consensus all(notes);
    all.check_joined(notes, ranks);
    return all.used;
  };
  EXPECT_THAT(check(BackwardNote::kJoining, joined()), Each(true));
  EXPECT_THAT(check(BackwardNote::kEndEarly, note({false, false, false})), Each(true)) << "none has joined";
  EXPECT_THROW(check(BackwardNote::kEndEarly, joined(BackwardNote::kEndEarly)), PeerError);
  EXPECT_THROW(check(BackwardNote::kEnclosingRecording, joined()), StateError);
}

}  // namespace
}  // namespace gradus::dist::internal
