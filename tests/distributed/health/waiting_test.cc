// Membership and errors of waits: the failure that ended the job, the statuses that ranks report, and which
// rank a timeout names, from statuses made by hand. RankSet, the compressed set of ranks in a status.
#include "gradus/distributed/health/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "gradus/distributed/base/error.h"

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
  members[2]->set_activity(Activity::kInCall, "barrier", "barrier #1 of group 'world'");
  members[0]->leave();
  const auto statuses = members[1]->statuses();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].rank, 0);
  EXPECT_TRUE(statuses[0].has_left);
  EXPECT_EQ(statuses[1].rank, 2);
  EXPECT_EQ(activity_text(statuses[1]), "in barrier #1 of group 'world'");
}

// The membership of rank 0 of 5, with given statuses of the other ranks.
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

const std::vector<int> kAll{0, 1, 2, 3, 4};
const Milliseconds kNow{100}, kLong{5300};  // since a rank's last sign of life: alive, stopped
const std::string kCall = "all_reduce #12 of group 'world'";

// The id of a call of a group. call_id(1, members) is all_reduce #12, in which rank 0 waits.
CallId call_id(uint32_t group, const std::vector<int>& members, uint64_t sequence = 12) {
  return {{CallSeries::Kind::kCollective, group, members[0]}, sequence};
}

// The text of the error after rank 0 waited 5 s for the ranks `missing` in an all_reduce of `members`.
// all_arrived: they are in the call, and rank 0 waits for their data. Sets *at_fault to the rank that the
// error blames, -1 for none.
std::string timeout_text(std::vector<RankStatus> statuses, const std::vector<int>& missing,
                         int* at_fault = nullptr, const std::vector<int>& members = kAll,
                         bool all_arrived = false) {
  FixedMembership membership(std::move(statuses));
  WaitScope in_call(membership, Wait::for_call("all_reduce", kCall, call_id(1, members), members));
  if (all_arrived) in_call.all_arrived();
  try {
    throw_wait("all_reduce", WaitResult::kTimeout, {&membership, Deadline::after(Milliseconds(5000))},
               missing);
  } catch (const TimeoutError& error) {
    EXPECT_TRUE(membership.failed());
    EXPECT_EQ(membership.failure().rank, error.rank());
    if (at_fault) *at_fault = error.rank();
    return error.what();
  }
}

// The status of a rank outside of any call, after the call `last`.
RankStatus outside(int rank, const std::string& last = "", Milliseconds silent = kNow) {
  return {.rank = rank, .silent = silent, .activity = Activity::kOutside, .call = last};
}
// The status of a rank in a call, in which it waits for the members that have not arrived. The id of the call
// is derived from its name.
RankStatus in(const std::string& call, int rank, const std::vector<int>& members) {
  const auto group = uint32_t(std::hash<std::string>()(call)) | 2;
  return {.rank = rank,
          .silent = kNow,
          .activity = Activity::kInCall,
          .call = call,
          .waits = {{.call = call_id(group, members), .ranks = RankSet(members)}}};
}
// The status of a rank in the same all_reduce as rank 0.
RankStatus here(int rank, const std::vector<int>& members = kAll) {
  RankStatus status = in(kCall, rank, members);
  status.waits[0].call = call_id(1, members);
  return status;
}
// The status of a rank in recv from any one of `sources`.
RankStatus receives(int rank, const std::vector<int>& sources) {
  const std::string from = sources.size() == 1 ? concat("rank ", sources[0]) : "any rank";
  return {.rank = rank,
          .silent = kNow,
          .activity = Activity::kInCall,
          .call = "recv from " + from,
          .waits = {{.ranks = RankSet(sources), .any = true}}};
}

// The failure of kCall on a GPU, which is not done 5 s after all ranks have made the call.
Failure failure_of_queued(std::vector<RankStatus> statuses) {
  FixedMembership membership(std::move(statuses));
  return queued_call_timeout(kCall, {&membership, Deadline::after(Milliseconds(5000))});
}

TEST(QueuedCall, NamesARankThatIsStopped) {
  const Failure failure = failure_of_queued({outside(1), outside(2, "", kLong), outside(3), outside(4)});
  EXPECT_EQ(failure.rank, 2);
  EXPECT_THAT(failure.text,
              HasSubstr(kCall + " is queued on the GPUs of all members, and was not done on rank 0's "
                                "within 5000 ms: rank 2: no sign of life for 5300 ms (stopped?)"));
}

TEST(QueuedCall, NamesNoRankIfAllAreAlive) {
  const Failure failure = failure_of_queued({outside(1), outside(2), outside(3), outside(4)});
  EXPECT_EQ(failure.rank, -1);
  EXPECT_THAT(failure.text, testing::EndsWith("within 5000 ms"));
}

TEST(QueuedCall, NamesTheStoreIfItDoesNotAnswer) {
  EXPECT_THAT(failure_of_queued({}).text, HasSubstr("the job's store does not answer"));
}

TEST(Timeout, NamesAStoppedRank) {
  EXPECT_EQ(timeout_text({here(1), outside(2, "", kLong), here(3), here(4)}, {2}),
            "[all_reduce] rank 2 did not come to all_reduce #12 of group 'world' within 5000 ms: no sign of "
            "life for 5300 ms (stopped?)");
}

TEST(Timeout, SaysWhatTheRankDoesInstead) {
  EXPECT_EQ(
      timeout_text({outside(2, "broadcast #11 of group 'world'")}, {2}),
      "[all_reduce] rank 2 did not come to all_reduce #12 of group 'world' within 5000 ms: it is outside of "
      "any "
      "collective, after broadcast #11 of group 'world'");
}

TEST(Timeout, ListsAllThatAreMissing) {
  EXPECT_EQ(timeout_text({{.rank = 1,
                           .silent = kNow,
                           .activity = Activity::kInCall,
                           .call = "user_get, where nobody set 'x'"},
                          {.rank = 3, .has_left = true, .silent = kNow},
                          {.rank = 4, .silent = kNow}},
                         {1, 3, 4}),
            "[all_reduce] ranks 1, 3, 4 did not come to all_reduce #12 of group 'world' within 5000 ms: rank "
            "1: it is "
            "in user_get, where nobody set 'x'; rank 3: it has left the job; rank 4: nothing is known of it");
}

TEST(Timeout, ARankThatWaitsAsWellIsNotBlamedForTheOneThatIsMissing) {
  int at_fault = -1;
  EXPECT_THAT(timeout_text({here(1), outside(2)}, {1, 2}, &at_fault), HasSubstr("rank 2 did not come"));
  EXPECT_EQ(at_fault, 2);
  // All have arrived; rank 0 waits for data of rank 1, which waits for data of rank 4.
  RankStatus one = here(1);
  one.waits = {{.call = one.waits[0].call}, {.ranks = RankSet({4}), .any = true}};
  EXPECT_THAT(timeout_text({one, here(2), outside(4, kCall, kLong)}, {1}, &at_fault, kAll, true),
              HasSubstr("rank 4 did not come"));
  EXPECT_EQ(at_fault, 4);
}

TEST(Timeout, IsBlamedOnTheRankAtTheEndOfTheChain) {
  int at_fault = -1;
  EXPECT_EQ(
      timeout_text({in("barrier #2 of group 'pair'", 1, {1, 3}), here(2),
                    in("gather #1 of group 'other'", 3, {3, 4}), outside(4)},
                   {1}, &at_fault, {0, 1, 2}),
      "[all_reduce] rank 4 holds up all_reduce #12 of group 'world', which did not end within 5000 ms: it is "
      "outside of any collective; rank 1 is in barrier #2 of group 'pair', where it waits for rank 3; rank 3 "
      "is "
      "in gather #1 of group 'other', where it waits for rank 4");
  EXPECT_EQ(at_fault, 4);
}

TEST(Timeout, SaysWhichOtherCallIsInBetween) {
  int at_fault = -1;
  EXPECT_EQ(
      timeout_text({receives(1, {4}), here(2, {0, 1, 2}), outside(4)}, {1, 2}, &at_fault, {0, 1, 2}),
      "[all_reduce] rank 4 holds up all_reduce #12 of group 'world', which did not end within 5000 ms: it is "
      "outside of any collective; rank 1 is in recv from rank 4, where it waits for rank 4");
  EXPECT_EQ(at_fault, 4);
}

// ---- Ranks that wait for each other in a circle. At fault are the fewest ranks that are in all circles.

const std::string kHalf = "all_reduce #1 of group 'half'", kNever = "all_reduce #1 of group 'never'",
                  kOdd = "all_reduce #1 of group 'odd'";

// On two hosts of two ranks, ranks 0 and 1 wait for rank 2 only, their neighbor on the other host. Rank 3 is
// not in their reports, but it is a member of the call that has not arrived.
TEST(Circle, IsTheFaultOfTheRankThatIsMissingInAllCalls) {
  int at_fault = -1;
  const std::vector<int> all{0, 1, 2, 3};
  EXPECT_EQ(timeout_text({here(1, all), in(kHalf, 2, {2, 3}), in(kNever, 3, all)}, {2}, &at_fault, all),
            "[all_reduce] rank 3 did not come to all_reduce #12 of group 'world' within 5000 ms: it is in " +
                kNever);
  EXPECT_EQ(at_fault, 3);
}

// Each rank is in another call. Only the circles show that rank 1 is at fault.
TEST(Circle, OfThreeRanksInThreeCallsIsTheFaultOfTheOneInBothCircles) {
  int at_fault = -1;
  EXPECT_THAT(
      timeout_text({in(kNever, 1, {0, 1, 2}), in(kOdd, 2, {1, 2})}, {1, 2}, &at_fault, {0, 1, 2}),
      HasSubstr("rank 1 did not come to all_reduce #12 of group 'world' within 5000 ms: it is in " + kNever));
  EXPECT_EQ(at_fault, 1);
}

TEST(Circle, IsTheFaultOfTheRankThatMakesTheReport) {
  int at_fault = -1;
  const std::string other = "barrier #3 of group 'world'";
  EXPECT_EQ(
      timeout_text({in(other, 1, kAll), in(other, 2, kAll), in(other, 3, kAll), in(other, 4, kAll)},
                   {1, 2, 3}, &at_fault),
      "[all_reduce] rank 0 did not come to barrier #3 of group 'world' within 5000 ms: it is in " + kCall);
  EXPECT_EQ(at_fault, 0);
}

TEST(Circle, ElsewhereHoldsUpACallOfNoneOfItsRanks) {
  int at_fault = -1;
  EXPECT_EQ(timeout_text(
                {in(kHalf, 1, {1, 2, 3}), in(kHalf, 2, {1, 2, 3}), in(kNever, 3, kAll), here(4, {0, 1, 4})},
                {1}, &at_fault, {0, 1, 4}),
            "[all_reduce] rank 3 holds up all_reduce #12 of group 'world', which did not end within 5000 ms: "
            "it is in " +
                kNever + "; rank 1 is in " + kHalf + ", where it waits for rank 3");
  EXPECT_EQ(at_fault, 3);
}

// Either rank 1 did not send a message, or rank 3 should not receive one.
TEST(Circle, ListsTheRanksThatNobodyCanTellApart) {
  int at_fault = -1;
  EXPECT_EQ(
      timeout_text({here(1), here(2), receives(3, {1}), here(4)}, {3}, &at_fault),
      "[all_reduce] rank 3 or rank 1 holds up all_reduce #12 of group 'world', which did not end within 5000 "
      "ms: they wait for each other: rank 3: it is in recv from rank 1; rank 1: it is in " +
          kCall);
  EXPECT_EQ(at_fault, 3) << "with whom fewest are";
  // The same if rank 0 should send: the other members are in its call, and it does not wait for them.
  EXPECT_THAT(timeout_text({here(1), here(2), receives(3, {0}), here(4)}, {3}),
              HasSubstr("] rank 3 or rank 0 holds up"));
}

TEST(Circle, ThroughARankThatReceivesFromAnyoneMayBeAnyones) {
  EXPECT_THAT(timeout_text({here(1), here(2), receives(3, {0, 1, 2, 4}), here(4)}, {3}),
              HasSubstr("] rank 3 or rank 0 or rank 1 or rank 2 or rank 4 holds up"));
  // Not if another rank at fault holds up rank 3 as well.
  EXPECT_THAT(timeout_text({in(kHalf, 1, {1, 2}), in(kNever, 2, kAll), receives(3, {0, 1, 2})}, {1, 2, 3}),
              HasSubstr("] rank 2 did not come"));
}

TEST(Circle, OfRanksInTwoCallsIsTheFaultOfTheFewest) {
  EXPECT_THAT(
      timeout_text({here(1), here(2), in(kNever, 3, kAll), in(kNever, 4, kAll)}, {3, 4}),
      HasSubstr(
          "] ranks 3, 4 did not come to all_reduce #12 of group 'world' within 5000 ms: rank 3: it is in"));
  EXPECT_THAT(timeout_text({here(1, {0, 1, 2, 3}), in(kNever, 2, {0, 1, 2, 3}), in(kNever, 3, {0, 1, 2, 3})},
                           {2, 3}, nullptr, {0, 1, 2, 3}),
              HasSubstr("] ranks 0, 1 or ranks 2, 3 hold up"));
}

TEST(Circle, WithoutFewCulpritsListsAll) {
  EXPECT_THAT(timeout_text({here(1), in(kNever, 2, kAll), in(kOdd, 3, kAll), here(4)}, {2, 3}),
              HasSubstr("] ranks 2, 3, 0, 1, 4 hold up all_reduce #12"));
}

// Rank 2 has posted the call in which rank 1 is, and waits for rank 1 in another call. That is no circle.
TEST(Circle, CountsPostedCallsAsCome) {
  int at_fault = -1;
  RankStatus two = in("barrier #1 of group 'pair'", 2, {1, 2});
  two.waits.push_back({.call = in(kOdd, 1, {1, 2, 3}).waits[0].call, .blocks = false});
  EXPECT_THAT(timeout_text({in(kOdd, 1, {1, 2, 3}), two, in(kNever, 3, kAll), here(4)}, {1, 2}, &at_fault),
              HasSubstr("rank 3 did not come"));
  EXPECT_EQ(at_fault, 3);
}

// Rank 1's status is 1.5 s old, but the wait took 300 ms: that rank 1 received from rank 0 then proves
// nothing.
TEST(Timeout, DoesNotGoByWhatARankSaidBeforeTheWaitBegan) {
  RankStatus one = receives(1, {0});
  one.silent = Milliseconds(1500);
  FixedMembership membership({one, here(2)});
  const WaitScope in_call(membership, Wait::for_call("all_reduce", kCall, call_id(1, kAll), kAll));
  try {
    throw_wait("all_reduce", WaitResult::kTimeout, {&membership, Deadline::after(Milliseconds(300))}, {1});
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 did not come to all_reduce #12"));
  }
}

TEST(Timeout, NamesNobodyWhenAllAreInTheCall) {
  int at_fault = 0;
  EXPECT_THAT(timeout_text({here(1), here(2), here(3), here(4)}, {1}, &at_fault),
              HasSubstr("did not end within 5000 ms: rank 1 did not answer in it"));
  EXPECT_EQ(at_fault, -1);
  // The same if ranks 0 and 1 wait for each other's data.
  RankStatus one = here(1);
  one.waits = {{.call = one.waits[0].call}, {.ranks = RankSet({0}), .any = true}};
  EXPECT_THAT(timeout_text({one, here(2)}, {1}, &at_fault, kAll, true),
              HasSubstr("rank 1 did not answer in it"));
  EXPECT_EQ(at_fault, -1);
}

// ---- What a rank reports about itself.

std::string text_of(const RankSet& ranks) {
  std::string text;
  for (const RankSet::Run& run : ranks.runs()) {
    text += concat(text.empty() ? "" : ",", run.first);
    if (run.last > run.first) text += concat('-', run.last);
    if (run.step > 1) text += concat('/', run.step);
  }
  return text;
}

std::string text_of(const RankStatus& status) {
  std::string text = activity_text(status);
  for (const RankWait& wait : status.waits) {
    text += concat("; ", wait.blocks ? "" : "not blocked in ");
    if (wait.call.defined())
      text += concat(wait.call.series.group, '.', wait.call.series.first, '#', wait.call.sequence);
    text += concat(wait.any ? " any of " : ": ", text_of(wait.ranks));
  }
  return text;
}

TEST(Status, CountsMessagesOfWhichTheSenderComesToTheNext) {
  const auto members = make_local_memberships(2);
  Membership &sender = *members[0], &receiver = *members[1];
  // What the receiver waits for, and whether the sender has come to it.
  const auto has_come = [&] {
    const WaitScope receiving(receiver,
                              Wait::for_message("recv", "recv from rank 0", receiver.next_message(0)));
    const RankStatus from = sender.status(), to = receiver.status();
    EXPECT_EQ(from.stuck, 0u) << "it is in no call";
    EXPECT_NE(to.stuck, 0u);
    EXPECT_EQ(to.waits.size(), 1u);
    EXPECT_THAT(to.waits[0].ranks.ranks(), testing::ElementsAre(0));
    // A stuck rank reports the calls at which it has arrived.
    const WaitScope other(sender, Wait::for_message("recv", "recv from rank 1", sender.next_message(1)));
    const auto arrived = sender.status().arrived;
    const auto it = arrived.find(to.waits[0].call.series);
    return it != arrived.end() && it->second >= to.waits[0].call.sequence;
  };
  EXPECT_FALSE(has_come());
  sender.count_sent(1);
  EXPECT_TRUE(has_come()) << "it is under way";
  receiver.count_received(0);
  EXPECT_FALSE(has_come());
  sender.count_sent(1);
  sender.count_sent(1);
  receiver.count_received(0);
  EXPECT_TRUE(has_come());
}

TEST(Status, IsStuckOnlyWhereAllOfItWaitsForOthersToCome) {
  const auto members = make_local_memberships(2);
  Membership& me = *members[0];
  const auto is_stuck = [&] { return me.status().stuck != 0; };
  const std::vector<int> group{0, 1};
  const char queue = 0;
  EXPECT_FALSE(is_stuck());
  WaitScope call(me, Wait::for_call("barrier", "barrier #1", call_id(5, group, 1), group));
  EXPECT_TRUE(is_stuck());
  {
    const WaitScope waiting(me, Wait::for_queue(&queue, false));
    EXPECT_TRUE(is_stuck());
  }
  {
    const WaitScope waiting(me, Wait::for_queue(&queue, true));
    EXPECT_FALSE(is_stuck()) << "it goes on after a while";
  }
  {
    const WaitScope posted(me, Wait::posted(call_id(5, group).series));
    EXPECT_TRUE(is_stuck());
  }
  {
    const WaitScope posted(me, Wait::posted(call_id(6, group).series));
    EXPECT_FALSE(is_stuck()) << "a call that is posted has yet to begin";
  }
  std::thread([&] {
    const WaitScope waiting(me, Wait::for_ranks([] { return std::vector{1}; }));
    EXPECT_FALSE(is_stuck()) << "another thread waits outside of calls";
  }).join();
  std::thread([&] {
    const WaitScope thread(me, Wait::program_thread());
    EXPECT_FALSE(is_stuck()) << "another thread computes";
  }).join();
  EXPECT_TRUE(is_stuck());
  call.all_arrived();
  EXPECT_FALSE(is_stuck());
}

TEST(Status, TellsForWhomARankWaits) {
  const auto members = make_local_memberships(4);
  Membership& me = *members[0];
  const auto status = [&] { return text_of(members[1]->statuses()[0]); };
  me.set_activity(Activity::kInCall, "recv", "recv from rank 2");
  {
    const WaitScope waiting(me, Wait::for_any_rank([] { return std::vector{2}; }));
    EXPECT_EQ(status(), "in recv from rank 2;  any of 2");
  }
  me.set_activity(Activity::kOutside, "", "");
  EXPECT_EQ(status(), "outside of any collective");
  {
    const std::vector<int> group{0, 1, 3};
    WaitScope call(me, Wait::for_call("barrier", "barrier #7", call_id(5, group, 7), group));
    // The call's own wait for rank 1's record is not reported until all have arrived.
    const WaitScope record(me, Wait::for_ranks([] { return std::vector{1}; }));
    EXPECT_EQ(status(), "in barrier #7; 5.0#7: 0-1,3");
    call.all_arrived();
    EXPECT_EQ(status(), "in barrier #7; 5.0#7: ; : 1");
  }
  EXPECT_EQ(status(), "outside of any collective, after barrier #7");
}

TEST(Status, APostedCallHoldsTheRankWhenItsProgramWaitsForIt) {
  const auto members = make_local_memberships(2);
  Membership& me = *members[0];
  const auto status = [&] { return text_of(members[1]->statuses()[0]); };
  const std::vector<int> group{0, 1};
  const int queue = 0, other_queue = 0;
  internal::current_call_queue = &queue;
  std::optional<WaitScope> posted(std::in_place, me,
                                  Wait::for_call("all_reduce", "all_reduce #2", call_id(5, group, 2), group));
  internal::current_call_queue = nullptr;
  const std::string under_way =
      "outside of any collective, with all_reduce #2 under way; not blocked in 5.0#2: 0-1";
  EXPECT_EQ(status(), under_way);
  {
    const WaitScope waiting(me, Wait::for_queue(&other_queue, false));
    EXPECT_EQ(status(), under_way) << "it waits for another";
  }
  {
    const WaitScope waiting(me, Wait::for_queue(&queue, false));
    EXPECT_EQ(status(), "in all_reduce #2; 5.0#2: 0-1");
  }
  {
    const WaitScope call(me, Wait::for_call("barrier", "barrier #1", call_id(6, group, 1), group));
    EXPECT_EQ(status(), "in barrier #1; not blocked in 5.0#2: 0-1; 6.0#1: 0-1");
  }
  internal::current_call_queue = &queue;
  posted.reset();
  internal::current_call_queue = nullptr;
  EXPECT_EQ(status(), "outside of any collective, after all_reduce #2");
}

TEST(RankSet, IsStoredAsRuns) {
  const auto text = [](const std::vector<int>& ranks) { return text_of(RankSet(ranks)); };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({7}), "7");
  EXPECT_EQ(text({3, 2, 1, 0, 2}), "0-3");
  EXPECT_EQ(text({0, 8, 16, 24, 25, 26, 40}), "0-24/8,25-26,40");
  const RankSet set = RankSet({1, 3, 5, 9});
  EXPECT_EQ(set.ranks(), (std::vector<int>{1, 3, 5, 9}));
  for (int rank = -1; rank < 12; ++rank)
    EXPECT_EQ(set.contains(rank), rank == 1 || rank == 3 || rank == 5 || rank == 9) << rank;
}

TEST(RankSet, LeavesOutMalformedRuns) {
  const auto text = [](const std::vector<RankSet::Run>& runs) {
    return text_of(RankSet::from_runs(runs, 10));
  };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({{0, 9, 1}}), "0-9");
  EXPECT_EQ(text({{1, 7, 2}, {8, 9, 1}}), "1-7/2,8-9");
  EXPECT_EQ(text({{5, 3, 1},
                  {-1, 2, 1},
                  {2, 10, 1},
                  {0, 9, 0},
                  {1, 2, -1},
                  {4, 4, 11},
                  {3, 3, 1},
                  {3, 3, 1},
                  {1, 1, 1},
                  {6, 8, 2},
                  {7, 7, 1}}),
            "3,6-8/2");
}

TEST(Timeout, WithoutAnyNewsStillNamesTheRank) {
  EXPECT_EQ(timeout_text({}, {3}),
            "[all_reduce] rank 3 did not come to all_reduce #12 of group 'world' within 5000 ms: the job's "
            "store does not answer (is this host cut off?)");
  EXPECT_THAT(
      timeout_text({}, {}),
      HasSubstr(
          "all_reduce #12 of group 'world' did not end within 5000 ms: the job's store does not answer"));
}

TEST(Timeout, GivesWayToAnEarlierFailure) {
  const auto members = make_local_memberships(2);
  members[1]->report({Failure::Kind::kFailed, 1, "rank 1 threw"});
  const WaitLimits watch{members[0].get(), Deadline::after(Milliseconds(0))};
  EXPECT_THROW(throw_wait("recv", WaitResult::kTimeout, watch, {1}), PeerError);
  EXPECT_THROW(throw_wait("recv", WaitResult::kFailed, watch, {1}), PeerError);
}

TEST(Leaving, IsAnErrorOnlyWhenSomethingIsStillMissing) {
  const auto members = make_local_memberships(2);
  const WaitLimits watch{members[0].get(), Deadline::after(Milliseconds(1000))};
  members[0]->set_activity(Activity::kInCall, "recv", "recv from rank 1");
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
