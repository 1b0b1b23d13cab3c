// Who is alive, what ended the job, and what an error says about the ranks that it was waited for.
#include "gradus/distributed/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/distributed/error.h"

namespace gradus::dist::internal {
namespace {

using ::testing::HasSubstr;

TEST(Failure, BecomesTheErrorOfItsKind) {
  EXPECT_THROW(throw_failure("f", {Failure::Kind::kTimeout, 2, "x"}), TimeoutError);
  EXPECT_THROW(throw_failure("f", {Failure::Kind::kMismatch, 2, "x"}), MismatchError);
  for (const auto kind : {Failure::Kind::kDied, Failure::Kind::kFailed, Failure::Kind::kLeft}) try {
      throw_failure("all_reduce", {kind, 2, "rank 2 has ended"});
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 2);
      EXPECT_STREQ(error.what(), "[all_reduce] rank 2 has ended");
    }
}

TEST(LocalMembership, TheFirstReportCountsForAll) {
  const auto members = make_local_memberships(3);
  EXPECT_NO_THROW(members[2]->check("f"));
  EXPECT_EQ(members[1]->report({Failure::Kind::kDied, 0, "first"}).text, "first");
  EXPECT_EQ(members[2]->report({Failure::Kind::kDied, 1, "second"}).text, "first");
  for (const auto& member : members) {
    ASSERT_TRUE(member->failed());
    EXPECT_EQ(member->failure().text, "first");
    EXPECT_THROW(member->check("f"), PeerError);
  }
}

TEST(LocalMembership, WhoHasLeftIsKnownAndHasNoSayAnyMore) {
  const auto members = make_local_memberships(2);
  members[1]->leave();
  EXPECT_TRUE(members[0]->has_left(1));
  EXPECT_FALSE(members[0]->has_left(0));
  members[1]->report({Failure::Kind::kDied, 0, "late"});
  EXPECT_FALSE(members[0]->failed());
}

TEST(LocalMembership, TellsWhatOthersDo) {
  const auto members = make_local_memberships(3);
  members[2]->set_doing("in barrier #1 of group 'world'");
  members[0]->leave();
  const auto statuses = members[1]->statuses();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].rank, 0);
  EXPECT_TRUE(statuses[0].left);
  EXPECT_EQ(statuses[1].rank, 2);
  EXPECT_EQ(statuses[1].doing, "in barrier #1 of group 'world'");
}

// Rank 0's; what it hears of others is given.
class FixedMembership final : public Membership {
 public:
  explicit FixedMembership(std::vector<RankStatus> statuses)
      : Membership(0, 5), statuses_(std::move(statuses)) {}
  Failure report(const Failure& failure) override {
    set_failed(failure);
    return this->failure();
  }
  void leave() override {}
  std::vector<RankStatus> statuses() override { return statuses_; }

 private:
  std::vector<RankStatus> statuses_;
};

// The text of a timeout of all_reduce after 5 s, in which rank 0 waited for `missing`.
std::string timeout_text(std::vector<RankStatus> statuses, const std::vector<int>& missing,
                         int* at_fault = nullptr) {
  FixedMembership membership(std::move(statuses));
  membership.set_doing("in all_reduce #12 of group 'world'");
  try {
    throw_wait("all_reduce", Wait::kTimeout, {&membership, Deadline::after(Milliseconds(5000))}, missing);
  } catch (const TimeoutError& error) {
    EXPECT_TRUE(membership.failed());
    EXPECT_EQ(membership.failure().rank, error.rank());
    if (at_fault) *at_fault = error.rank();
    return error.what();
  }
}

const std::string kHere = "in all_reduce #12 of group 'world'";
const Milliseconds kNow{100}, kLong{5300};

TEST(Timeout, NamesAStoppedRank) {
  EXPECT_EQ(timeout_text({{1, false, kNow, kHere}, {2, false, kLong, "x"}}, {2}),
            "[all_reduce] rank 2 did not come to all_reduce #12 of group 'world' within 5000 ms: no sign of "
            "life for "
            "5300 ms (stopped?)");
}

TEST(Timeout, SaysWhatTheRankDoesInstead) {
  EXPECT_EQ(timeout_text(
                {{2, false, kNow, "outside of any collective, after broadcast #11 of group 'world'"}}, {2}),
            "[all_reduce] rank 2 did not come to all_reduce #12 of group 'world' within 5000 ms: it is "
            "outside of any "
            "collective, after broadcast #11 of group 'world'");
}

TEST(Timeout, ListsAllThatAreMissing) {
  EXPECT_EQ(
      timeout_text(
          {{1, false, kNow, "in barrier #11 of group 'world'"}, {3, true, kNow, ""}, {4, false, kNow, ""}},
          {1, 3, 4}),
      "[all_reduce] ranks 1, 3, 4 did not come to all_reduce #12 of group 'world' within 5000 ms: rank 1: it "
      "is in "
      "barrier #11 of group 'world'; rank 3: it has left the job; rank 4: nothing is known of it");
}

TEST(Timeout, ARankThatWaitsAsWellIsNotBlamedForTheOneThatIsMissing) {
  int at_fault = -1;
  EXPECT_THAT(timeout_text({{1, false, kNow, kHere}, {2, false, kNow, "elsewhere"}}, {1, 2}, &at_fault),
              HasSubstr("rank 2 did not come"));
  EXPECT_EQ(at_fault, 2);
  // It waits for a message from rank 1, which waits for one from rank 4.
  EXPECT_THAT(timeout_text({{1, false, kNow, kHere}, {2, false, kNow, kHere}, {4, false, kLong, kHere}}, {1},
                           &at_fault),
              HasSubstr("rank 4 did not come"));
  EXPECT_EQ(at_fault, 4);
}

RankStatus waiting(int rank, const std::string& doing, const std::vector<int>& awaits) {
  return {.rank = rank, .silent = kNow, .doing = doing, .awaits = awaits};
}

// Between hosts: rank 0 waits for its leader, who waits for another leader, who waits for a rank of its host.
TEST(Timeout, IsBlamedOnTheRankAtTheEndOfTheChain) {
  EXPECT_EQ(
      timeout_text({waiting(1, kHere, {2}),
                    waiting(2, kHere, {3}),
                    {3, false, kNow, "outside of any collective, after barrier #2 of group 'world'"}},
                   {1}),
      "[all_reduce] rank 3 did not come to all_reduce #12 of group 'world' within 5000 ms: it is outside of "
      "any collective, after barrier #2 of group 'world'");
}

TEST(Timeout, SaysWhichOtherCallIsInBetween) {
  int at_fault = -1;
  EXPECT_EQ(
      timeout_text({waiting(1, "in recv from rank 4", {4}),
                    waiting(2, kHere, {1}),
                    {4, false, kNow, "outside of any collective"}},
                   {1, 2}, &at_fault),
      "[all_reduce] rank 4 holds up all_reduce #12 of group 'world', which did not end within 5000 ms: it is "
      "outside of any collective; rank 1 is in recv from rank 4, where it waits for rank 4");
  EXPECT_EQ(at_fault, 4);
}

TEST(Timeout, OfRanksThatWaitForEachOtherIsBlamedOnTheOneThatMostWaitFor) {
  int at_fault = -1;
  const std::string other = "in barrier #3 of group 'world'";
  EXPECT_THAT(
      timeout_text({waiting(1, kHere, {2}), waiting(2, other, {0, 1}), waiting(3, kHere, {2})}, {2},
                   &at_fault),
      HasSubstr("rank 2 did not come to all_reduce #12 of group 'world' within 5000 ms: it is " + other));
  EXPECT_EQ(at_fault, 2);
  // Seen by the rank itself: the others are in another call, and wait for it.
  EXPECT_THAT(timeout_text({waiting(1, other, {0}), waiting(2, other, {0}), waiting(3, other, {0})},
                           {1, 2, 3}, &at_fault),
              HasSubstr("rank 0 did not come to barrier #3 of group 'world' within 5000 ms: it is " + kHere));
  EXPECT_EQ(at_fault, 0);
}

TEST(Timeout, NamesNobodyWhenAllAreInTheCall) {
  int at_fault = 0;
  EXPECT_THAT(timeout_text({waiting(1, kHere, {0})}, {1}, &at_fault),
              HasSubstr("did not end within 5000 ms: rank 1 did not answer in it"));
  EXPECT_EQ(at_fault, -1);
}

TEST(Status, TellsForWhomARankWaitsUnlessItsProgramRunsOn) {
  const auto members = make_local_memberships(3);
  Membership& me = *members[0];
  const auto status = [&] { return members[1]->statuses()[0]; };
  me.set_doing("in barrier #1");
  {
    const Membership::Awaiting awaiting(me, [] { return std::vector{2}; });
    EXPECT_EQ(status().awaits, std::vector{2});
    EXPECT_EQ(status().doing, "in barrier #1");
  }
  EXPECT_TRUE(status().awaits.empty());
  me.set_doing("outside of any collective");

  runs_posted_calls = true;
  const Membership::Awaiting posted(me, [] { return std::vector{1}; });
  me.set_doing("in all_reduce #2");
  runs_posted_calls = false;
  EXPECT_TRUE(status().awaits.empty());
  EXPECT_EQ(status().doing, "outside of any collective, with all_reduce #2 under way");
  const Membership::AwaitingCall awaiting(me);
  EXPECT_EQ(status().awaits, std::vector{1});
  EXPECT_EQ(status().doing, "in all_reduce #2");
}

TEST(Timeout, WithoutAnyNewsStillNamesTheRank) {
  EXPECT_EQ(timeout_text({}, {3}),
            "[all_reduce] rank 3 did not come to all_reduce #12 of group 'world' within 5000 ms: the job's "
            "store does not answer (is this host cut off?)");
  EXPECT_EQ(timeout_text({}, {}), "[all_reduce] all_reduce #12 of group 'world' did not end within 5000 ms");
}

TEST(Timeout, GivesWayToAnEarlierFailure) {
  const auto members = make_local_memberships(2);
  members[1]->report({Failure::Kind::kFailed, 1, "rank 1 threw"});
  const Watch watch{members[0].get(), Deadline::after(Milliseconds(0))};
  EXPECT_THROW(throw_wait("recv", Wait::kTimeout, watch, {1}), PeerError);
  EXPECT_THROW(throw_wait("recv", Wait::kFailed, watch, {1}), PeerError);
}

TEST(Leaving, IsAnErrorOnlyWhenSomethingIsStillMissing) {
  const auto members = make_local_memberships(2);
  const Watch watch{members[0].get(), Deadline::after(Milliseconds(1000))};
  members[0]->set_doing("in recv from rank 1");
  check_left("recv", watch, 1, [] { return true; });  // it is still there
  members[1]->leave();
  check_left("recv", watch, 1, [] { return false; });  // what was awaited has come
  EXPECT_FALSE(members[0]->failed());
  try {
    check_left("recv", watch, 1, [] { return true; });
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_STREQ(error.what(), "[recv] rank 1 has left the job, and rank 0 waits for it in recv from rank 1");
  }
}

}  // namespace
}  // namespace gradus::dist::internal
