// What follows from the notes of all ranks.
#include "gradus/distributed/data_parallel/internal/consensus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/internal/compare.h"

namespace gradus::dist::internal {
namespace {

using testing::Each;
using testing::ElementsAre;

BackwardNote note(std::vector<bool> reached, BackwardNote::Kind kind = BackwardNote::kBackward,
                  int64_t flags = 0) {
  return {.kind = kind, .flags = flags, .reached = std::move(reached)};
}
BackwardNote joined(int64_t flags = 0) { return note({false, false, false}, BackwardNote::kJoined, flags); }

Consensus of(BackwardNotes notes) {
  Consensus all;
  all.resolve(std::move(notes));
  return all;
}

TEST(BackwardNote, ComesBackAsItWasWritten) {
  BackwardNote given = note(std::vector<bool>(130), BackwardNote::kJoined, BackwardNote::kEnclosingRecording);
  given.reached[0] = given.reached[64] = given.reached[129] = true;
  given.number = 7, given.plan_fingerprint = -8, given.attached = 9, given.checksum = -10;
  std::vector<int64_t> record = serialize(given);
  const std::optional<BackwardNote> back = parse(record);
  ASSERT_TRUE(back);
  EXPECT_EQ(serialize(*back), record);
  EXPECT_EQ(back->reached, given.reached);
  record.pop_back();
  EXPECT_FALSE(parse(record)) << "too short";
  EXPECT_FALSE(parse({}));
}

TEST(Consensus, WhatSomeRankReachesIsUsed) {
  const Consensus all = of({note({true, false, false}), note({true, true, false})});
  EXPECT_THAT(all.used, ElementsAre(true, true, false));
  EXPECT_FALSE(all.canceled || all.diverged);
  EXPECT_EQ(all.divisor, 2);
  EXPECT_EQ(all.root(), 0);
}

TEST(Consensus, CancelsOrDivergesWithoutUsedParameters) {
  BackwardNote a = note({true, true, true}), b = a;
  a.checksum = 1, b.checksum = 3;
  const Consensus canceled = of({a, note({false, false, false}, BackwardNote::kNone)});
  EXPECT_TRUE(canceled.canceled);
  EXPECT_FALSE(canceled.diverged) << "a rank without a backward has compared nothing";
  EXPECT_THAT(canceled.used, Each(false));
  EXPECT_TRUE(of({a, b}).diverged);
  EXPECT_THAT(of({a, b}).used, Each(false));
  EXPECT_FALSE(of({a, b, joined()}).diverged) << "a rank that joined does not compare";
}

TEST(Consensus, RanksThatJoinedCountInAMeanUnlessTheyAskNotTo) {
  const auto divisor = [](int64_t flags) {
    return of({joined(flags), note({true, true, true}, BackwardNote::kBackward, flags), joined(flags)})
        .divisor;
  };
  EXPECT_EQ(divisor(BackwardNote::kJoining), 3);
  EXPECT_EQ(divisor(BackwardNote::kJoining | BackwardNote::kDivideByActive), 1);
  EXPECT_EQ(of({joined(), note({true, true, true})}).root(), 1) << "the first with data";
  EXPECT_EQ(of({joined(), joined()}).active, -1);
  EXPECT_EQ(of({joined(), joined()}).root(), 0);
}

TEST(Consensus, RanksWithDataCannotAlwaysGoOnWithoutThoseThatJoined) {
  const auto check = [&](int64_t flags, const BackwardNote& second) {
    const Consensus all = of({note({true, true, true}, BackwardNote::kBackward, flags), second});
    all.check_joined({4, 6});
    return all.used;
  };
  EXPECT_THAT(check(BackwardNote::kJoining, joined()), Each(true));
  EXPECT_THAT(check(BackwardNote::kEndEarly, note({false, false, false})), Each(true)) << "none has joined";
  EXPECT_THROW(check(BackwardNote::kEndEarly, joined(BackwardNote::kEndEarly)), PeerError);
  EXPECT_THROW(check(BackwardNote::kEnclosingRecording, joined()), StateError);
}

TEST(FindDifference, NamesTheFirstLineTheMajorityAndTheRanksThatDiffer) {
  const auto text = [](const std::vector<std::vector<std::string>>& lists) {
    const auto difference = find_difference(lists, {0, 2, 4, 6});
    return difference ? difference->text : "";
  };
  EXPECT_EQ(text({{"a", "b"}, {"a", "b"}}), "");
  EXPECT_EQ(text({{"x"}, {"a"}, {"a"}, {"a"}}), "rank 2 has a, rank 0 has x");
  EXPECT_EQ(text({{"a", "b"}, {"a", "c"}, {"a", "b"}, {"a", "c"}}), "rank 0 has b, ranks 2, 6 have c");
  EXPECT_EQ(text({{"a", "b"}, {"a"}}), "rank 0 has b, rank 2 has no more");
}

}  // namespace
}  // namespace gradus::dist::internal
