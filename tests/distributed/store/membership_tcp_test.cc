// Membership through a store's server: which ranks are alive, have left, or wait for whom, and the one
// failure of the job that all ranks report. Ranks are objects in this process, or forked processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "gradus/distributed/health/roster.h"
#include "gradus/distributed/store/internal/status_wire.h"
#include "gradus/distributed/store/internal/store_connection.h"
#include "gradus/distributed/store/memory_store.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"
#include "gradus/tests/distributed/transport/forked_process.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using internal::encode;
using internal::MessageType;
using internal::StoreConnection;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Milliseconds kLong{20'000};  // for waits that must succeed

StoreAddress address_of(const StoreServer& server, int attempt = 0) {
  return {.host = "127.0.0.1", .port = server.port(), .attempt = attempt};
}

constexpr const char* kLaunchers = "launchers' token";

StoreAddress launcher_address(const StoreServer& server) {
  return {.host = "127.0.0.1", .port = server.port(), .token = kLaunchers};
}

// Polls f until it returns true, or the limit has passed.
template <class F> bool comes_true(F&& f, Milliseconds limit = kLong) {
  const Deadline deadline = Deadline::after(limit);
  while (!f()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(Milliseconds(5));
  }
  return true;
}

using Process = internal::ForkedClient;

// A rank that joins, sets the key "joined<rank>", and sleeps.
void live(int port, int rank, int world_size) {
  auto membership = join_tcp({.host = "127.0.0.1", .port = port}, rank, world_size, kLong);
  membership->set_activity(Activity::kInCall, "all_reduce", "all_reduce #12");
  connect_tcp_store({.host = "127.0.0.1", .port = port}, kLong)->set("joined" + std::to_string(rank), "");
  std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(TcpMembershipTest, ADeathIsKnownToAllWithinASecondOrTwo) {
  Process process([](int port) { live(port, 1, 3); });  // before there are threads
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 3, kLong), third = join_tcp(address_of(server), 2, 3, kLong);
  process.start(server.port());
  connect_tcp_store(address_of(server), kLong)->get("joined1", kLong);

  process->signal(SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(comes_true([&] { return first->failed() && third->failed(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(2'500));
  for (const auto& member : {first, third}) {
    EXPECT_EQ(member->failure().kind, Failure::Kind::kDied);
    EXPECT_EQ(member->failure().rank, 1);
    EXPECT_EQ(member->failure().text, "rank 1 died: its connection closed");
    EXPECT_THROW(member->check("all_reduce"), PeerError);
  }
  Failure failure;
  EXPECT_TRUE(server.failed(&failure));
  EXPECT_EQ(failure.rank, 1);
}

TEST(TcpMembershipTest, TheLaunchersVerdictComesFirst) {
  Process process([](int port) { live(port, 1, 2); });
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 2, kLong);
  process.start(server.port());
  connect_tcp_store(address_of(server), kLong)->get("joined1", kLong);

  process->signal(SIGKILL);
  std::this_thread::sleep_for(Milliseconds(100));
  EXPECT_FALSE(first->failed());
  // Another rank's report of the broken connection also waits for the launcher's.
  std::thread reporter([&] {
    EXPECT_THAT(first->report({Failure::Kind::kDied, 1, "rank 1 hung up"}).text, HasSubstr("SIGKILL"));
  });
  std::this_thread::sleep_for(Milliseconds(100));
  server.report({Failure::Kind::kDied, 1, "rank 1 was killed by signal 9 (SIGKILL)"});
  reporter.join();
  EXPECT_EQ(first->failure().text, "rank 1 was killed by signal 9 (SIGKILL)");
}

TEST(TcpMembershipTest, AStoppedRankIsNoFailureButSilent) {
  Process process([](int port) { live(port, 1, 2); });
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 2, kLong);
  process.start(server.port());
  connect_tcp_store(address_of(server), kLong)->get("joined1", kLong);
  // The next heartbeat sends the activity.
  EXPECT_TRUE(comes_true([&] {
    const auto statuses = first->statuses();
    return statuses.size() == 1 && statuses[0].rank == 1 && activity_text(statuses[0]) == "in all_reduce #12";
  }));

  process->stop();
  EXPECT_TRUE(comes_true([&] { return first->statuses().at(0).silent >= Milliseconds(1'500); }));
  EXPECT_FALSE(first->failed());
  process->signal(SIGCONT);
  EXPECT_TRUE(comes_true([&] { return first->statuses().at(0).silent < Milliseconds(1'000); }));
}

TEST(TcpMembershipTest, OthersLearnForWhomARankWaits) {
  StoreServer server({});
  const auto first = join_tcp(address_of(server), 0, 600, kLong),
             second = join_tcp(address_of(server), 1, 600, kLong);
  std::vector<int> even, uneven;  // uneven: too many runs of ranks for a heartbeat, may be cut
  for (int rank = 0; rank < 600; rank += 2) even.push_back(rank);
  for (int rank = 0; rank < 600; rank += 1 + rank % 7) uneven.push_back(rank);
  const auto id = [](uint32_t group, uint64_t sequence) {
    return CallId{{CallSeries::Kind::kCollective, group, 0}, sequence};
  };
  const int queue = 0;
  internal::current_call_queue = &queue;
  const WaitScope posted(*second, Wait::for_call("all_reduce", "all_reduce #3", id(9, 3), even));
  internal::current_call_queue = nullptr;
  WaitScope complete(*second, Wait::for_call("gather", "gather #5", id(5, 5), even));
  complete.all_arrived();
  const WaitScope message(*second, Wait::for_any_rank([] { return std::vector{4, 5}; }));
  const WaitScope long_call(*second, Wait::for_call("barrier", "barrier #2", id(4, 2), uneven));
  const WaitScope call(*second, Wait::for_call("barrier", "barrier #8", id(6, 8), even));

  const std::vector<RankWait> expected = {
      {.call = id(9, 3), .ranks = RankSet(even), .blocks = false},
      {.call = id(5, 5)},
      {.call = id(4, 2), .ranks = RankSet(uneven)},
      {.call = id(6, 8), .ranks = RankSet(even)},
      {.ranks = RankSet({4, 5}), .any = true},
  };
  const auto is_expected = [&] {
    const auto statuses = first->statuses();
    if (statuses.empty() || activity_text(statuses[0]) != "in barrier #8") return false;
    const std::vector<RankWait>& waits = statuses[0].waits;
    if (waits.size() != expected.size()) return false;
    for (size_t i = 0; i < waits.size(); ++i) {
      const bool has_room = expected[i].ranks.runs().size() < 100;
      if (waits[i].call != expected[i].call || waits[i].any != expected[i].any ||
          waits[i].blocks != expected[i].blocks || (has_room && waits[i].ranks != expected[i].ranks))
        return false;
    }
    return true;
  };
  EXPECT_TRUE(comes_true(is_expected));
}

TEST(TcpMembershipTest, WhoLeavesIsNotDead) {
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 3, kLong), second = join_tcp(address_of(server), 1, 3, kLong);
  second->leave();
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  EXPECT_FALSE(first->has_left(0));
  second.reset();
  std::this_thread::sleep_for(internal::kLauncherGracePeriod + Milliseconds(300));
  EXPECT_FALSE(first->failed());
  // A rank that joins later is informed, too.
  auto third = join_tcp(address_of(server), 2, 3, kLong);
  EXPECT_TRUE(comes_true([&] { return third->has_left(1); }));
  const auto statuses = third->statuses();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_FALSE(statuses[0].has_left);
  EXPECT_TRUE(statuses[1].has_left);
}

// Each closes its connection while the server notifies it that others have left.
TEST(TcpMembershipTest, ManyThatLeaveAtOnceAreNotDead) {
  constexpr int kRanks = 32;
  for (int repeat = 0; repeat < 3; ++repeat) {
    StoreServer server({});
    std::vector<std::optional<StoreConnection>> members;
    for (int rank = 0; rank < kRanks; ++rank)
      members.emplace_back(StoreConnection::open(
          "leave", address_of(server),
          {.role = internal::Role::kMember, .attempt = 0, .rank = rank, .world_size = kRanks},
          Deadline::after(kLong)));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        std::string why;
        EXPECT_EQ(members[rank]->send(encode({MessageType::kLeave, {}, {}}), Deadline::after(kLong), &why),
                  internal::Io::kDone);
        members[rank].reset();
        server.rank_exited(rank);
      });
    for (std::thread& thread : threads) thread.join();
    std::this_thread::sleep_for(internal::kLauncherGracePeriod + Milliseconds(100));
    Failure failure;
    EXPECT_FALSE(server.failed(&failure)) << failure.text;
  }
}

TEST(TcpMembershipTest, WhoEndsBeforeItJoinsHasLeft) {
  StoreServer server({.launcher_token = kLaunchers});
  server.rank_exited(1);  // before anyone is there
  auto first = join_tcp(address_of(server), 0, 3, kLong);
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  const auto link = join_tcp_as_launcher(launcher_address(server), "node 1", kLong);
  link->rank_exited(7, 0);  // another attempt's
  link->rank_exited(0, 2);
  EXPECT_TRUE(comes_true([&] { return first->has_left(2); }));
  EXPECT_TRUE(first->others_left());
  EXPECT_FALSE(first->failed()) << "unless somebody waits for it";
  EXPECT_THROW(join_tcp(address_of(server), 1, 3, kLong), ConnectionError);
  link->leave();
}

TEST(TcpMembershipTest, WhoEndsInOrderMustHaveLeft) {
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 3, kLong), second = join_tcp(address_of(server), 1, 3, kLong),
       third = join_tcp(address_of(server), 2, 3, kLong);
  server.rank_exited(1);  // its last message may arrive later
  second->leave();
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  std::this_thread::sleep_for(internal::kLauncherGracePeriod + Milliseconds(300));
  EXPECT_FALSE(first->failed());
  server.rank_exited(2);
  EXPECT_TRUE(comes_true([&] { return first->failed(); }));
  EXPECT_EQ(first->failure().text, "rank 2 exited with code 0 without leaving the job (_exit?)");
}

TEST(TcpMembershipTest, WhoHasLeftHearsOfOthersButReportsNothing) {
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 2, kLong), second = join_tcp(address_of(server), 1, 2, kLong);
  first->leave();
  EXPECT_EQ(first->report({Failure::Kind::kFailed, 0, "too late"}).text, "too late");
  second->leave();
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  EXPECT_FALSE(server.failed());
  EXPECT_FALSE(second->failed());
}

TEST(TcpMembershipTest, TheFirstReportCountsForAll) {
  StoreServer server({});
  constexpr int kRanks = 4;
  std::vector<std::shared_ptr<Membership>> members;
  for (int r = 0; r < kRanks; ++r) members.push_back(join_tcp(address_of(server), r, kRanks, kLong));
  std::vector<Failure> counted(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      counted[r] =
          members[r]->report({Failure::Kind::kTimeout, (r + 1) % kRanks, "told by " + std::to_string(r)});
    });
  for (auto& thread : threads) thread.join();
  Failure failure;
  ASSERT_TRUE(server.failed(&failure));
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(counted[r].text, failure.text);
    EXPECT_EQ(counted[r].kind, Failure::Kind::kTimeout);
    EXPECT_EQ(counted[r].rank, failure.rank);
    EXPECT_EQ(members[r]->failure().text, failure.text);
  }
  server.report({Failure::Kind::kDied, 0, "later"});
  EXPECT_EQ(members[0]->failure().text, failure.text);
}

TEST(TcpMembershipTest, ALostServerIsTheJobsFailure) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions{});
  auto stays = join_tcp(address_of(*server), 0, 2, kLong),
       leaves = join_tcp(address_of(*server), 1, 2, kLong);
  leaves->leave();
  server.reset();
  EXPECT_TRUE(comes_true([&] { return stays->failed(); }));
  EXPECT_EQ(stays->failure().kind, Failure::Kind::kDied);
  EXPECT_THAT(stays->failure().text, AllOf(HasSubstr("127.0.0.1:"), HasSubstr("the launcher, or rank 0")));
  EXPECT_FALSE(leaves->failed()) << "it is done";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(stays->statuses().empty());
  EXPECT_THAT(stays->report({Failure::Kind::kTimeout, 1, "other"}).text, HasSubstr("lost the store"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(2'000));
}

TEST(TcpMembershipTest, AServerThatHasStoppedHoldsUpNobody) {
  // The server's process, which publishes its port in shared memory and is stopped below.
  internal::Segment memory(sizeof(std::atomic<int>));
  auto& port = *reinterpret_cast<std::atomic<int>*>(memory.data());
  internal::ForkedProcess process([&] {
    StoreServer server({});
    port = server.port();
    std::this_thread::sleep_for(std::chrono::hours(1));
  });
  ASSERT_TRUE(comes_true([&] { return port != 0; }));
  auto member = join_tcp({.host = "127.0.0.1", .port = port.load()}, 0, 2, kLong),
       leaves = join_tcp({.host = "127.0.0.1", .port = port.load()}, 1, 2, kLong);
  auto store = guarded_store(connect_tcp_store({.host = "127.0.0.1", .port = port.load()}, kLong), member);

  process.stop();
  auto start = std::chrono::steady_clock::now();
  leaves->leave();
  leaves.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(900));
  start = std::chrono::steady_clock::now();
  EXPECT_TRUE(member->statuses().empty());
  EXPECT_ANY_THROW(store->get("key", Milliseconds(500)));
  EXPECT_EQ(member->report({Failure::Kind::kTimeout, 1, "mine"}).text, "mine");
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(6'000));
}

TEST(TcpMembershipTest, ARankIsThereOnceAndInsideOfTheWorld) {
  StoreServer server({});
  auto member = join_tcp(address_of(server), 1, 2, kLong);
  const auto error_of = [&](int rank, int world_size) {
    return gradus::error_of<ConnectionError>([&] { join_tcp(address_of(server), rank, world_size, kLong); });
  };
  EXPECT_THAT(error_of(1, 2), HasSubstr("rank 1 is announced already"));
  EXPECT_THAT(error_of(0, 3), HasSubstr("3 ranks"));
  EXPECT_THAT(error_of(2, 2), HasSubstr("outside"));
  EXPECT_THAT(error_of(-1, 2), HasSubstr("outside"));
  auto other = join_tcp(address_of(server), 0, 2, kLong);
  EXPECT_FALSE(other->failed()) << "who was refused has not died";
}

TEST(TcpMembershipTest, TheNextAttemptStartsAfresh) {
  StoreServer server({});
  auto old = join_tcp(address_of(server), 0, 1, kLong);
  server.report({Failure::Kind::kFailed, 0, "rank 0 exited with code 1"});
  EXPECT_TRUE(comes_true([&] { return old->failed(); }));
  server.begin_attempt(1);
  EXPECT_FALSE(server.failed());
  auto next = join_tcp(address_of(server, 1), 0, 2, kLong);
  old.reset();  // of no interest any more
  std::this_thread::sleep_for(internal::kLauncherGracePeriod + Milliseconds(200));
  EXPECT_FALSE(next->failed());
}

TEST(TcpMembershipTest, GuardedWaitsEndWithTheFailure) {
  StoreServer server({});
  auto member = join_tcp(address_of(server), 0, 2, kLong);
  auto store = guarded_store(connect_tcp_store(address_of(server), kLong), member);
  const auto start = std::chrono::steady_clock::now();
  std::thread reporter([&] {
    std::this_thread::sleep_for(Milliseconds(100));
    server.report({Failure::Kind::kFailed, 1, "rank 1 exited with code 3"});
  });
  for (const auto& wait : std::vector<std::function<void()>>{
           [&] { store->get("key", kLong); }, [&] { store->pop("key", kLong); },
           [&] { store->wait({"key"}, kLong); }, [&] { store->set("key", ""); }}) {
    try {
      wait();
      ADD_FAILURE() << "no error";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 exited with code 3"));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(2'000));
  reporter.join();
}

TEST(GuardedStoreTest, AFailureCountsMoreThanATimeoutThatComesAtOnce) {
  const auto members = make_local_memberships(2);
  auto store = guarded_store(make_memory_store(), members[0]);
  std::thread reporter([&] {
    std::this_thread::sleep_for(Milliseconds(50));
    members[1]->report({Failure::Kind::kFailed, 1, "rank 1 exited with code 3"});
  });
  // The store waits in slices of time; the job fails during the first one.
  EXPECT_THROW(store->get("key", Milliseconds(150)), PeerError);
  reporter.join();
}

// ---- launchers of further nodes

TEST(LauncherLinkTest, ALaunchersReportIsAVerdict) {
  StoreServer server({.launcher_token = kLaunchers});
  auto link = join_tcp_as_launcher(launcher_address(server), "node 1", kLong);
  auto member = join_tcp(address_of(server), 0, 2, kLong);
  EXPECT_FALSE(link->failed(0));
  link->report(1, {Failure::Kind::kFailed, 1, "of an attempt that is not"});
  link->report(0, {Failure::Kind::kFailed, 1, "rank 1 exited with code 3"});
  Failure failure;
  EXPECT_TRUE(comes_true([&] { return member->failed() && link->failed(0, &failure); }));
  EXPECT_EQ(member->failure().text, "rank 1 exited with code 3");
  EXPECT_EQ(failure.text, "rank 1 exited with code 3");
  EXPECT_FALSE(link->failed(1));

  server.begin_attempt(1);
  link->report(0, {Failure::Kind::kFailed, 1, "of an attempt that is over"});
  auto next = join_tcp(address_of(server, 1), 0, 2, kLong);
  link->report(1, {Failure::Kind::kFailed, 0, "again"});
  EXPECT_TRUE(comes_true([&] { return next->failed(); }));
  EXPECT_EQ(next->failure().text, "again");
}

TEST(LauncherLinkTest, ADeadLauncherIsNamed) {
  StoreServer server({.launcher_token = kLaunchers});
  auto leaves = join_tcp_as_launcher(launcher_address(server), "node 1", kLong);
  auto dies = join_tcp_as_launcher(launcher_address(server), "node 2 (there)", kLong);
  auto member = join_tcp(address_of(server), 0, 2, kLong);
  leaves->leave();
  leaves.reset();
  dies.reset();
  EXPECT_TRUE(comes_true([&] { return member->failed(); }));
  EXPECT_EQ(member->failure().text, "the launcher of node 2 (there) died: its connection closed");
}

// ---- the roster alone

TEST(RosterTest, ADeathSeenBeforeATimeoutIsTheCause) {
  internal::Roster roster;
  const TimePoint start;
  ASSERT_FALSE(roster.join(0, 2, start));
  ASSERT_FALSE(roster.join(1, 2, start));
  roster.connection_lost(1, "died: its connection closed", start);
  roster.report({Failure::Kind::kTimeout, 1, "rank 1 did not come"}, start + Milliseconds(100));
  EXPECT_FALSE(roster.failure());
  roster.expire(start + internal::kLauncherGracePeriod);
  ASSERT_TRUE(roster.failure());
  EXPECT_EQ(roster.failure()->text, "rank 1 died: its connection closed");
}

TEST(RosterTest, ATimeoutBeforeADeathIsTheCause) {
  internal::Roster roster;
  const TimePoint start;
  ASSERT_FALSE(roster.join(0, 2, start));
  roster.report({Failure::Kind::kTimeout, 1, "rank 1 did not come"}, start);
  roster.connection_lost(0, "died: its connection closed", start);
  EXPECT_EQ(roster.failure()->text, "rank 1 did not come");
  EXPECT_FALSE(roster.next_deadline());
}

TEST(RosterTest, EndsADeadlockWhenNobodyHasMovedSinceItWasSeen) {
  const TimePoint start{};
  internal::Roster roster;
  for (int rank : {0, 1}) EXPECT_FALSE(roster.join(rank, 2, start));
  // Each rank waits for the other in a call of its own. `moves`: its progress counter; `answers`: the number
  // of the query that the heartbeat answers; `ms`: the time.
  const auto beat = [&](int rank, uint64_t moves, int64_t answers, int ms) {
    const CallId call = rank == 0 ? CallId{{CallSeries::Kind::kCollective, 1, 0}, 3}
                                  : CallId{{CallSeries::Kind::kCollective, 2, 0}, 7};
    roster.heartbeat(rank, answers,
                     {.rank = rank,
                      .activity = Activity::kInCall,
                      .call = rank == 0 ? "backward #3 of group 'DDP of gen'" : "barrier #7 of group 'world'",
                      .waits = {{.call = call, .ranks = RankSet({0, 1})}},
                      .stuck = moves,
                      .arrived = {{call.series, call.sequence}}},
                     start + Milliseconds(ms));
  };
  // Returns the number of the query to send to the ranks, 0 for none.
  const auto asks = [&] {
    const auto query = roster.take_query();
    return query ? query->number : 0;
  };
  beat(0, 5, 0, 0);
  beat(1, 8, 0, 0);
  EXPECT_EQ(asks(), 0) << "they may have come to it just now";
  beat(0, 5, 0, 500);
  EXPECT_EQ(asks(), 1);
  EXPECT_EQ(asks(), 0);
  beat(1, 8, 0, 500);
  beat(0, 5, 0, 600);
  beat(0, 5, 1, 610);
  EXPECT_FALSE(roster.failure()) << "rank 1 has not answered";
  beat(1, 9, 1, 610);
  EXPECT_FALSE(roster.failure()) << "rank 1 has moved";

  beat(1, 9, 1, 1000);
  EXPECT_EQ(asks(), 2);
  beat(1, 9, 2, 1010);
  beat(0, 5, 2, 1010);
  ASSERT_TRUE(roster.failure());
  EXPECT_EQ(roster.failure()->kind, Failure::Kind::kDeadlock);
  EXPECT_THAT(roster.failure()->text, AllOf(HasSubstr("they wait for each other"),
                                            HasSubstr("it is in backward #3 of group 'DDP of gen'"),
                                            HasSubstr("it is in barrier #7 of group 'world'")));
}

// ---- a status as bytes

TEST(StatusWire, DecodesWhatItEncodes) {
  const CallSeries series{CallSeries::Kind::kCollective, 3, 2}, messages{CallSeries::Kind::kMessage, 1, 0};
  const RankStatus status{.activity = Activity::kOutside,
                          .call = "all_reduce #7",
                          .posted = {"broadcast #1", "broadcast #2"},
                          .waits = {{.call = {series, 8}, .ranks = RankSet({2, 3, 5})},
                                    {.ranks = RankSet({0, 4}), .any = true, .blocks = false}},
                          .stuck = 77,
                          .arrived = {{series, 8}, {messages, 5}}};
  const auto decoded = internal::decode_status(internal::encode_status(status), 6);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->activity, status.activity);
  EXPECT_EQ(decoded->call, status.call);
  EXPECT_EQ(decoded->posted, status.posted);
  EXPECT_EQ(decoded->stuck, status.stuck);
  EXPECT_EQ(decoded->arrived, status.arrived);
  ASSERT_EQ(decoded->waits.size(), 2u);
  for (int i : {0, 1}) {
    EXPECT_EQ(decoded->waits[i].call, status.waits[i].call);
    EXPECT_EQ(decoded->waits[i].ranks, status.waits[i].ranks);
    EXPECT_EQ(decoded->waits[i].any, status.waits[i].any);
    EXPECT_EQ(decoded->waits[i].blocks, status.waits[i].blocks);
  }
  EXPECT_TRUE(internal::decode_status(internal::encode_status(status), 5)->waits[0].ranks == RankSet({2, 3}));
}

TEST(StatusWire, IsCutToTheLimit) {
  RankStatus status{.call = std::string(100'000, 'x'),
                    .posted = std::vector<std::string>(100, std::string(100, 'y')),
                    .stuck = 5};
  std::vector<int> ranks;
  for (int rank = 0; rank < 10'000; rank += 1 + rank % 3) ranks.push_back(rank);
  for (uint32_t group = 0; group < 500; ++group) {
    const CallSeries series{CallSeries::Kind::kCollective, group, 0};
    status.waits.push_back({.call = {series, 1}, .ranks = RankSet(ranks)});
    status.arrived[series] = 1;
    const std::string bytes = internal::encode_status(status);
    EXPECT_LE(bytes.size(), internal::kMaxStatusBytes);
    const auto decoded = internal::decode_status(bytes, 10'000);
    ASSERT_TRUE(decoded);
    // A rank is reported as stuck only with all its waits and arrivals.
    if (decoded->stuck != 0) {
      EXPECT_EQ(decoded->waits.size(), status.waits.size());
      EXPECT_EQ(decoded->arrived, status.arrived);
    }
  }
}

TEST(StatusWire, RejectsOtherBytes) {
  const CallSeries series{CallSeries::Kind::kBarrier, 3, 2};
  const std::string bytes =
      internal::encode_status({.activity = Activity::kInCall,
                               .call = "barrier #1",
                               .posted = {"x"},
                               .waits = {{.call = {series, 8}, .ranks = RankSet({2, 3, 5})}},
                               .stuck = 7,
                               .arrived = {{series, 8}}});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(internal::decode_status(bytes.substr(0, size), 6)) << size;
  EXPECT_FALSE(internal::decode_status(bytes + 'x', 6));
  EXPECT_FALSE(internal::decode_status("in barrier #1", 6));
  EXPECT_FALSE(internal::decode_status(std::string(internal::kMaxStatusBytes + 1, '\0'), 6));
  // A changed byte leads to a refusal or to a status with ranks in range.
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int value = 0; value < 256; ++value) {
      std::string other = bytes;
      other[i] = char(value);
      const auto decoded = internal::decode_status(other, 6);
      if (!decoded) continue;
      for (const RankWait& wait : decoded->waits)
        for (int rank : wait.ranks.ranks()) ASSERT_TRUE(rank >= 0 && rank < 6);
    }
}

}  // namespace
}  // namespace gradus::dist
